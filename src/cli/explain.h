// What `explain` says of norms, worked out with numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/norms.h"

namespace normscope {

// Tokens (rows) × features (columns).
struct Numbers {
  std::ptrdiff_t rows = 0, cols = 0;
  std::vector<double> values;
};

struct Affine {
  std::vector<double> gain, bias;  // empty: 1 and 0
};

// Four significant digits. What is nothing beside `scale` is a rounding error of 0.
std::string shown_number(double value, double scale = 1e-300);

// "α x + ...": how the norm arrives at its output for one vector, step by step, with a check by the engine.
// Of norms over tokens the vector is one feature of as many tokens.
void explain_norm(NormKind kind, const std::vector<double>& x, const Affine& affine);

// What the norm makes of a matrix, and of which of its numbers the mean is 0 and the deviation 1.
void explain_axis(NormKind kind, const Numbers& x, const Affine& affine);

}  // namespace normscope
