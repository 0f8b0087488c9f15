// RMS norm over D of each head's query and key, and of its value if that has a gain.
//
//   shapes      qkv, y (N, 3C: q, k, v); gains (1, D), one for all heads
//   forward     y = gain x̂,  x̂ = x rstd,  rstd = 1/√(mean(x²) + eps), means over a head's D numbers; without
//               a gain for it, v is copied
//   backward    dx = rstd (g - x̂ mean(g x̂)) with g = gain dy;  dgain = sum dy x̂
//               norm_eps_outside, norm_affine and norm_detach have no effect here: gains are always learned
//   saved       rstd of each token and head, and its mean, 0, which the kernel of layer norm reads
//   source      Henry et al. 2020 (arXiv 2010.04245), in the RMS form of later models
#pragma once

#include <array>

#include "autograd/tape.h"
#include "kernels/pointwise.h"
#include "kernels/rows.h"

namespace normscope {

template <class Real>
Var<Real> query_key_norm(Tape<Real>& tape, Real eps, Index heads, Var<Real> qkv, Var<Real> q_gain,
                         Var<Real> k_gain, Var<Real> v_gain = {}) {
  const typename Tape<Real>::Op op(tape, "qk_norm", qkv.rows, qkv.cols);
  const Index tokens = qkv.rows, width = qkv.cols / 3, head_dim = width / heads;
  const std::array<Var<Real>, 3> gains = {q_gain, k_gain, v_gain};
  for (const Var<Real>& gain : gains) {
    require(!gain || gain.size() == head_dim, "query_key_norm", "gains must have ", head_dim,
            " numbers; got ", gain.size());
  }
  std::array<LayerNorm<Real>, 3> norms;
  const Index parts = v_gain ? 3 : 2;
  const Var<Real> y = tape.create(tokens, qkv.cols);
  for (Index i = 0; i < parts; ++i) {
    norms[i] = {.groups = heads,
                .centred = false,
                .eps = eps,
                .shared_gain = true,
                .rows = tokens,
                .cols = width,
                .stride = qkv.cols,
                .x = qkv.data + i * width,
                .gain = gains[i].data,
                .mean = tape.template save<Real>(tokens * heads),
                .rstd = tape.template save<Real>(tokens * heads)};
    layer_norm_forward(norms[i], y.data + i * width);
  }
  if (!v_gain) add_rows(tokens, width, qkv.cols, qkv.data + 2 * width, Real(0), y.data + 2 * width);

  tape.record(y, [=](Tape<Real>& t) {
    const Real* dy = t.gradient(y).data;
    const auto [dx, beta] = t.accumulate(qkv);
    for (Index i = 0; i < parts; ++i)
      layer_norm_backward(norms[i], {dy + i * width, dx + i * width, beta, t.add_to(gains[i])});
    if (!v_gain) add_rows(tokens, width, qkv.cols, dy + 2 * width, beta, dx + 2 * width);
  });
  return y;
}

}  // namespace normscope
