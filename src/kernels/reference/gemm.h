// The naive twin of every GEMM: three loops, summed in double.
#pragma once

#include "kernels/gemm/gemm.h"

namespace normscope::reference {

template <class Real>
void gemm(const Gemm<Real>& g) {
  const auto at = [](const Matrix<Real>& x, Index i, Index j) {
    return static_cast<double>(*x.block(i, j, 1, 1).data);
  };
  for (Index i = 0; i < g.c.rows; ++i) {
    for (Index j = 0; j < g.c.cols; ++j) {
      double sum = 0;
      for (Index k = 0; k < g.a.cols; ++k) sum += at(g.a, i, k) * at(g.b, k, j);
      Real& c = g.c.data[i * g.c.ld + j];
      const double before = g.beta == 0 ? 0.0 : static_cast<double>(g.beta) * static_cast<double>(c);
      c = static_cast<Real>(before + static_cast<double>(g.alpha) * sum);
    }
  }
}

}  // namespace normscope::reference
