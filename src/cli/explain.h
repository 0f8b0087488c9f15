// The parts of `explain`: norms with numbers, placements, the blocks of a config.
#pragma once

#include <valarray>

#include "config/run_config.h"

namespace normscope {

using Vector = std::valarray<double>;

// Tokens (rows) x features (columns), of sequences of `context` tokens.
struct Numbers {
  Index rows, cols, context;
  Vector values;
};

struct Affine {
  Vector gain, bias;  // of each feature; a single number stands for all; empty: 1 and 0
};

// The norm of a vector step by step. For norms over tokens it is one feature of several tokens. Usage Error:
// the norm has no such parameter, their count is wrong, or its arithmetic is not known here.
void explain_norm(const NormRow& row, const Vector& x, const Affine& affine);

// Standardisation and min-max scaling of the vector, with which norms are confused; nan if all are equal.
void explain_scaling(const Vector& x);

// BatchNorm's running statistics over three batches.
void explain_running_statistics();

// A norm of each number of a matrix, and which numbers share a mean and a variance.
void explain_axes(const NormRow& row, const Numbers& x, const Affine& affine = {});

void print_numbers(const Numbers& x);

// A placement's drawing, equations and gradient.
void explain_placement(const Placement& row);

// The equations and parameter counts of a config's own blocks.
void explain_config(const RunConfig& config);

}  // namespace normscope
