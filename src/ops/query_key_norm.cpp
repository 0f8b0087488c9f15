// RMS norm over D of each head's query and key, and of its value if that has a gain: group norms of H groups
// over thirds of qkv's columns, with one gain for all groups. Saved: rstd of each token and head.
#include <array>

#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> query_key_norm(Tape<Real>& tape, Real eps, Index heads, Var<Real> qkv, Var<Real> q_gain,
                         Var<Real> k_gain, Var<Real> v_gain) {
  const typename Tape<Real>::Op op(tape, "qk_norm", qkv.rows, qkv.cols);
  const Index tokens = qkv.rows, width = qkv.cols / 3, head_dim = width / heads;
  const std::array<Var<Real>, 3> gains = {q_gain, k_gain, v_gain};
  for (const Var<Real>& gain : gains) {
    require(!gain || gain.size() == head_dim, "query_key_norm", "gains must have ", head_dim,
            " numbers; got ", gain.size());
  }
  const auto norm_of = [&](const Real* x, const Var<Real>& gain) {
    Real *mean = tape.template save<Real>(tokens * heads), *rstd = tape.template save<Real>(tokens * heads);
    return LayerNorm<Real>{.groups = heads,
                           .centred = false,
                           .eps = eps,
                           .shared_gain = true,
                           .rows = tokens,
                           .cols = width,
                           .stride = qkv.cols,
                           .x = x,
                           .gain = gain.value,
                           .mean = mean,
                           .rstd = rstd};
  };
  std::array<LayerNorm<Real>, 3> norms;
  const Index parts = v_gain ? 3 : 2;
  Var<Real> y = tape.create(tokens, qkv.cols);
  for (Index i = 0; i < parts; ++i) {
    norms[i] = norm_of(qkv.value + i * width, gains[i]);
    layer_norm_forward<Real>(norms[i], y.block(0, i * width, tokens, width));
  }
  if (!v_gain) add_rows(tokens, width, qkv.cols, qkv.value + 2 * width, Real(0), y.value + 2 * width);

  tape.record(y, [=](Tape<Real>& t) {
    const Real* dy = t.gradient(y);
    const auto [dx, beta] = t.accumulate(qkv);
    for (Index i = 0; i < parts; ++i)
      layer_norm_backward(norms[i], {dy + i * width, dx + i * width, beta, add_if_wanted(t, gains[i])});
    if (!v_gain) add_rows(tokens, width, qkv.cols, dy + 2 * width, beta, dx + 2 * width);
  });
  return y;
}

template Var<float> query_key_norm(Tape<float>&, float, Index, Var<float>, Var<float>, Var<float>,
                                   Var<float>);
template Var<double> query_key_norm(Tape<double>&, double, Index, Var<double>, Var<double>, Var<double>,
                                    Var<double>);

}  // namespace normscope
