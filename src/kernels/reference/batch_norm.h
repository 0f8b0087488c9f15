// The naive twins of batch norm, for columns [begin, end).
#pragma once

#include "kernels/rows.h"

namespace normscope::reference {

void forward_columns(const BatchNorm<double>& norm, Index begin, Index end, double* y);
void backward_columns(const BatchNorm<double>& norm, const NormGradients<double>& gradients, Index begin,
                      Index end);

}  // namespace normscope::reference
