// The kernels over rows and columns written out in double: the engine's double path, and what the fast
// kernels are tested against. The gradients follow the chain rule from value to value, with no formula of
// what cancels.
#pragma once

#include "kernels/rows.h"

namespace normscope::reference {

// Rows [begin, end); y points to row `begin`.
void layer_norm_forward(const LayerNorm<double>& norm, Index begin, Index end, double* y);
void layer_norm_backward(const LayerNorm<double>& norm, const NormGradients<double>& gradients, Index begin,
                         Index end);
void pointwise_norm_forward(const PointwiseNorm<double>& norm, Index begin, Index end, double* y);
void pointwise_norm_backward(const PointwiseNorm<double>& norm, const NormGradients<double>& gradients,
                             Index begin, Index end);

// Batch norm of the columns [begin, end).
void forward_columns(const BatchNorm<double>& norm, Index begin, Index end, double* y);
void backward_columns(const BatchNorm<double>& norm, const NormGradients<double>& gradients, Index begin,
                      Index end);

// max = the largest of x, sum = the sum of exp(x - max).
void softmax_stats(Index n, const double* x, double* max, double* sum);
// dx = beta*dx + factor*exp(x - max).
void add_exponentials(Index n, const double* x, double max, double factor, double* dx, double beta);

}  // namespace normscope::reference
