// The parts of `explain`: norms with numbers, placements, the blocks of a config.
#pragma once

#include "config/run_config.h"

namespace normscope {

// Tokens (rows) x features (columns), of sequences of `context` tokens.
struct Numbers {
  Index rows, cols, context;
  std::vector<double> values;
};

struct Affine {
  std::vector<double> gain, bias;  // empty: 1 and 0; a single number stands for all features
};

// "1,2,3" as numbers. Usage Error: [explain] OPTION: ...
std::vector<double> parse_numbers(const std::string& option, const std::string& list);

// A number with significant digits; rounding errors of 0 are 0.
std::string shown_number(double value, int digits = 4);

// The norm of a vector step by step, beside the engine's result. For norms over tokens the vector is one
// feature of several tokens. Usage Error for a norm whose arithmetic is not known here.
void explain_norm(const NormRow& row, const std::vector<double>& x, const Affine& affine);

// Standardisation and min-max scaling of the vector, with which norms are confused.
void explain_scaling(const std::vector<double>& x);

// BatchNorm's running statistics over three batches made of the vector.
void explain_running_statistics(const std::vector<double>& x);

// The norm of each number, and which numbers share a mean and a variance.
void explain_axes(const NormRow& row, const Numbers& x, const Affine& affine);

void print_numbers(const Numbers& x);

// A placement's drawing, equations and gradient.
void explain_placement(const Placement& row);

// The equations and parameter counts of a config's own blocks.
void explain_config(const RunConfig& config);

}  // namespace normscope
