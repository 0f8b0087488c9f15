// What `explain` says: norms worked out with numbers, placements, a config's blocks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace normscope {

// Tokens (rows) × features (columns).
struct Numbers {
  std::ptrdiff_t rows = 0, cols = 0;
  std::vector<double> values;
};

struct Affine {
  std::vector<double> gain, bias;  // empty: 1 and 0
};

// What is nothing beside `scale` is a rounding error of 0. `digits`: significant ones.
std::string shown_number(double value, double scale = 1e-300, int digits = 4);

// "α x + ...": how the norm arrives at its output for one vector, step by step, with a check by the engine.
// Of norms over tokens the vector is one feature of as many tokens.
void explain_norm(NormKind kind, const std::vector<double>& x, const Affine& affine);

// What is taken for a norm and is none: standardisation and min-max scaling.
void explain_scaling(const std::vector<double>& x);

// What the norm makes of a matrix, and of which of its numbers the mean is 0 and the deviation 1.
void explain_axis(NormKind kind, const Numbers& x, const Affine& affine);

// A placement's drawing, equations, gradient and what theory says of it.
void explain_placement(const Placement& row);

// The equations and parameter counts of a config's own blocks.
void explain_config(const RunConfig& config);

}  // namespace normscope
