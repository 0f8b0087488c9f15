// Cross-entropy of logits, written out in double.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/softmax.h"

namespace normscope::reference {

template <class Real>
double sum_exp(Index n, const Real* x, double shift) {
  double sum = 0;
  for (Index i = 0; i < n; ++i) sum += std::exp(x[i] - shift);
  return sum;
}

template <class Real>
void cross_entropy_forward(Index rows, Index classes, const Real* logits, const std::int32_t* targets,
                           Real* loss, SoftmaxStats<Real> stats) {
  for (Index row = 0; row < rows; ++row) {
    const Real* x = logits + row * classes;
    stats.max[row] = *std::max_element(x, x + classes);
    const double sum = sum_exp(classes, x, stats.max[row]);
    stats.sum[row] = static_cast<Real>(sum);
    loss[row] = static_cast<Real>(stats.max[row] + std::log(sum) - x[targets[row]]);
  }
}

template <class Real>
void cross_entropy_backward(Index rows, Index classes, const Real* logits, const std::int32_t* targets,
                            Real scale, Real* dlogits, Real beta) {
  for (Index row = 0; row < rows; ++row) {
    const Real* x = logits + row * classes;
    const double top = *std::max_element(x, x + classes), sum = sum_exp(classes, x, top);
    for (Index i = 0; i < classes; ++i) {
      Real& out = dlogits[row * classes + i];
      const double slope = std::exp(x[i] - top) / sum - (i == targets[row]);
      out = static_cast<Real>((beta == 0 ? 0.0 : double{beta} * out) + scale * slope);
    }
  }
}

}  // namespace normscope::reference
