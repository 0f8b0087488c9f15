// DyT and Derf, which stand in the place of a norm.
//
//   shapes      x, y (N, C); alpha, shift (1, 1), shift or absent; gain, bias (1, C) or absent
//   forward     y = gain f(alpha x + shift) + bias,  f = tanh or erf
//   backward    g = gain dy f':  dx = alpha g,  dalpha = sum g x,  dshift = sum g,
//               dgain = sum dy f,  dbias = sum dy
//   saved       nothing beyond x
//   source      Zhu et al. 2025 (arXiv 2503.10622), Chen et al. 2025 (2512.10938)
#pragma once

#include "autograd/tape.h"
#include "kernels/rows.h"

namespace normscope {

template <class Real>
Var<Real> pointwise_norm(Tape<Real>& tape, PointwiseFn function, Var<Real> x, Var<Real> alpha,
                         Var<Real> shift = {}, Var<Real> gain = {}, Var<Real> bias = {}) {
  const typename Tape<Real>::Op op(tape, "norm", x.rows, x.cols);
  require(alpha.size() == 1 && (!shift || shift.size() == 1), "pointwise_norm",
          "alpha and shift must be one number each; got ", alpha.size(), " and ", shift.size());
  const PointwiseNorm<Real> norm{x.rows,    x.cols,    *alpha.data, x.data,
                                 gain.data, bias.data, function,    shift ? *shift.data : Real(0)};
  const Var<Real> y = tape.create(x.rows, x.cols);
  pointwise_norm_forward(norm, y.data);

  tape.record(y, [=](Tape<Real>& t) {
    const auto [dx, beta] = t.accumulate(x);
    pointwise_norm_backward(norm, {t.gradient(y).data, dx, beta, t.add_to(gain), t.add_to(bias),
                                   t.add_to(alpha), t.add_to(shift)});
  });
  return y;
}

}  // namespace normscope
