// Cross-entropy of logits, written out in double.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/types.h"

namespace normscope::reference {

template <class Real>
double log_sum_exp(Index n, const Real* x) {
  const double top = *std::max_element(x, x + n);
  double sum = 0;
  for (Index i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  return top + std::log(sum);
}

template <class Real>
void cross_entropy_forward(Index rows, Index classes, const Real* logits, const std::int32_t* targets,
                           Real* loss, Real* log_sums) {
  for (Index row = 0; row < rows; ++row) {
    const double sum = log_sum_exp(classes, logits + row * classes);
    log_sums[row] = static_cast<Real>(sum);
    loss[row] = static_cast<Real>(sum - logits[row * classes + targets[row]]);
  }
}

template <class Real>
void cross_entropy_backward(Index rows, Index classes, const Real* logits, const std::int32_t* targets,
                            Real scale, Real* dlogits, Real beta) {
  for (Index row = 0; row < rows; ++row) {
    const double sum = log_sum_exp(classes, logits + row * classes);
    for (Index i = 0; i < classes; ++i) {
      Real& out = dlogits[row * classes + i];
      const double slope = std::exp(logits[row * classes + i] - sum) - (i == targets[row]);
      out = static_cast<Real>((beta == 0 ? 0.0 : double{beta} * out) + scale * slope);
    }
  }
}

}  // namespace normscope::reference
