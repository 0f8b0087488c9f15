// The parts of `explain`: norms with numbers, placements, the blocks of a config.
#pragma once

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

// A number with significant digits. Below 1e-12 * scale it is a rounding error of 0.
std::string shown_number(double value, double scale = 1e-300, int digits = 4);

// The norm of a vector step by step, checked against the engine's norm. For norms over tokens the vector is
// one feature of several tokens.
void explain_norm(NormKind kind, const std::vector<double>& x, const Affine& affine);

// Standardisation and min-max scaling, which norms are confused with.
void explain_scaling(const std::vector<double>& x);

// The norm of a matrix, and the parts of it that have mean 0 and deviation 1.
void explain_axis(NormKind kind, const Numbers& x, const Affine& affine);

// A placement's drawing, equations, gradient and theory.
void explain_placement(const Placement& row);

// The equations and parameter counts of a config's own blocks.
void explain_config(const RunConfig& config);

}  // namespace normscope
