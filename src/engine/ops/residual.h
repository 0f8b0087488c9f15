// The sums and factors around a sublayer.
//
//   shapes      x, branch, y (N, C); a learned factor (1, 1), or (1, C), one per feature
//   forward     y = alpha x + branch;  y = factor x, constant or learned
//   backward    dx = alpha dy, dbranch = dy;
//               dx = factor dy, dfactor = sum of dy x over all elements, or over the rows of each feature
//   saved       nothing beyond x; for a learned scale its factors (C)
//   source      He et al. 2015 (arXiv 1512.03385), Bachlechner et al. 2020 (2003.04887)
#pragma once

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/pointwise.h"
#include "kernels/simd.h"

namespace normscope {

template <class Real>
Var<Real> residual_sum(Tape<Real>& tape, Real alpha, Var<Real> x, Var<Real> branch) {
  const typename Tape<Real>::Op op(tape, "residual", x.rows, x.cols);
  require(x.rows == branch.rows && x.cols == branch.cols, "residual_sum", "x is (", x.rows, ", ", x.cols,
          "), the branch (", branch.rows, ", ", branch.cols, ")");
  const Var<Real> y = tape.create(x.rows, x.cols);
  add_scaled(x.size(), alpha, x.data, branch.data, y.data);

  tape.record(y, [=](Tape<Real>& t) {
    t.alias_gradient(y, branch);
    if (alpha == 1) {
      t.alias_gradient(y, x);
      return;
    }
    const Accumulator<Real> dx = t.accumulate(x);
    axpby(x.size(), alpha, t.gradient(y).data, dx.beta, dx.data);
  });
  return y;
}

// A constant factor; 1 returns x itself.
template <class Real>
Var<Real> scale(Tape<Real>& tape, Real factor, Var<Real> x) {
  if (factor == 1) return x;
  const typename Tape<Real>::Op op(tape, "scale", x.rows, x.cols);
  const Var<Real> y = tape.create(x.rows, x.cols);
  axpby(x.size(), factor, x.data, Real(0), y.data);

  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> dx = t.accumulate(x);
    axpby(x.size(), factor, t.gradient(y).data, dx.beta, dx.data);
  });
  return y;
}

// A learned factor; an absent one returns x itself.
template <class Real>
Var<Real> scale_by(Tape<Real>& tape, Var<Real> factor, Var<Real> x) {
  if (!factor) return x;
  const typename Tape<Real>::Op op(tape, "learned scale", x.rows, x.cols);
  require(factor.size() == 1 || factor.size() == x.cols, "scale_by", "the factor must be one number, or ",
          x.cols, "; got ", factor.size());
  // One factor is a row of equal factors.
  Real* factors = tape.template save<Real>(x.cols);
  for (Index c = 0; c < x.cols; ++c) factors[c] = factor.data[factor.size() == 1 ? 0 : c];
  const auto scale_rows = [=](const Real* in, Real* out) {
    parallel_for(x.rows, [&](Index row) {
      kernels<Real>().multiply(x.cols, in + row * x.cols, factors, out + row * x.cols);
    });
  };
  const Var<Real> y = tape.create(x.rows, x.cols);
  scale_rows(x.data, y.data);

  tape.record(y, [=](Tape<Real>& t) {
    const Real* dy = t.gradient(y).data;
    struct Product;
    Real* product = thread_scratch<Real, Product>(x.size());
    Real* dfactor = t.add_to(factor);
    if (dfactor != nullptr && factor.size() == 1) {
      *dfactor += static_cast<Real>(dot(x.size(), dy, x.data));
    } else if (dfactor != nullptr) {
      multiply(x.size(), dy, x.data, product);
      sum_rows(x.rows, x.cols, product, dfactor);
    }
    scale_rows(dy, product);
    const Accumulator<Real> dx = t.accumulate(x);
    axpby(x.size(), Real(1), product, dx.beta, dx.data);
  });
  return y;
}

}  // namespace normscope
