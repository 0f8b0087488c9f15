// Layer norm, RMS norm, group norm: each row, or each of `groups` equal parts of a row, is normalised.
//
//   shapes      x, y (N, C); gain, bias (1, C) or absent
//   forward     LayerNorm: y = gain x̂ + bias,  x̂ = (x - mean) rstd,  rstd = 1/√(variance + eps)
//               RMSNorm (rmsnorm, `centred` false): the same with mean = 0, so rstd = 1/√(mean(x²) + eps)
//   backward    LayerNorm: dx = rstd (g - mean(g) - x̂ mean(g x̂)) with g = gain dy;  dgain = sum dy x̂,
//               dbias = sum dy
//               RMSNorm: the same without mean(g): dx = rstd (g - x̂ mean(g x̂))
//               eps outside the root: the term of x̂ is times (σ + eps)/σ, σ = √variance or √mean(x²)
//               detached (Xu et al. 2019, arXiv 1911.07013): dx = rstd g
//   saved       mean and rstd of each row and group
//   source      Ba et al. 2016 (arXiv 1607.06450), Zhang & Sennrich 2019 (1910.07467),
//               Wu & He 2018 (1803.08494)
#pragma once

#include "autograd/tape.h"
#include "kernels/rows.h"

namespace normscope {

// `norm` says how to normalise; its shapes and pointers are set here.
template <class Real>
Var<Real> layer_norm(Tape<Real>& tape, LayerNorm<Real> norm, Var<Real> x, Var<Real> gain = {},
                     Var<Real> bias = {}) {
  const typename Tape<Real>::Op op(tape, "norm", x.rows, x.cols);
  require(x.cols % norm.groups == 0, "layer_norm", x.cols, " features in ", norm.groups, " groups");
  require((!gain || gain.size() == x.cols) && (!bias || bias.size() == x.cols), "layer_norm",
          "gain and bias must have ", x.cols, " numbers");
  norm.rows = x.rows, norm.cols = norm.stride = x.cols;
  norm.x = x.data, norm.gain = gain.data, norm.bias = bias.data;
  norm.mean = tape.template save<Real>(x.rows * norm.groups);
  norm.rstd = tape.template save<Real>(x.rows * norm.groups);
  const Var<Real> y = tape.create(x.rows, x.cols);
  layer_norm_forward(norm, y.data);

  tape.record(y, [=](Tape<Real>& t) {
    const auto [dx, beta] = t.accumulate(x);
    layer_norm_backward(norm, {t.gradient(y).data, dx, beta, t.add_to(gain), t.add_to(bias)});
  });
  return y;
}

}  // namespace normscope
