// The naive twin of every GEMM: three loops, summed in double.
#pragma once

#include "kernels/gemm.h"

namespace normscope::reference {

template <class Real>
void gemm(const Gemm<Real>& g) {
  const auto a = [&](Index i, Index k) {
    return g.trans_a == Transpose::yes ? g.a[k * g.lda + i] : g.a[i * g.lda + k];
  };
  const auto b = [&](Index k, Index j) {
    return g.trans_b == Transpose::yes ? g.b[j * g.ldb + k] : g.b[k * g.ldb + j];
  };
  for (Index i = 0; i < g.m; ++i) {
    for (Index j = 0; j < g.n; ++j) {
      double sum = 0;
      for (Index k = 0; k < g.k; ++k) sum += static_cast<double>(a(i, k)) * static_cast<double>(b(k, j));
      Real& c = g.c[i * g.ldc + j];
      const double before = g.beta == 0 ? 0.0 : static_cast<double>(g.beta) * static_cast<double>(c);
      c = static_cast<Real>(before + static_cast<double>(g.alpha) * sum);
    }
  }
}

}  // namespace normscope::reference
