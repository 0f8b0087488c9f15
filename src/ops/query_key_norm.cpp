// RMS norm over D of each head's query and key: group norms of H groups over two thirds of qkv's columns,
// with one gain for all groups. Saved: rstd of each token and head, of q and of k.
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> query_key_norm(Tape<Real>& tape, Real eps, Index heads, Var<Real> qkv, Var<Real> q_gain,
                         Var<Real> k_gain) {
  const typename Tape<Real>::Op op(tape, "qk_norm", qkv.rows, qkv.cols);
  const Index tokens = qkv.rows, width = qkv.cols / 3, head_dim = width / heads;
  require(q_gain.size() == head_dim && k_gain.size() == head_dim, "query_key_norm", "gains must have ",
          head_dim, " numbers; got ", q_gain.size(), " and ", k_gain.size());
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
  const LayerNorm<Real> q = norm_of(qkv.value, q_gain), k = norm_of(qkv.value + width, k_gain);

  Var<Real> y = tape.create(tokens, qkv.cols);
  layer_norm_forward(q, y.block(0, 0, tokens, width));
  layer_norm_forward(k, y.block(0, width, tokens, width));
  add_rows(tokens, width, qkv.cols, qkv.value + 2 * width, Real(0), y.value + 2 * width);

  tape.add_noise(tokens * heads, q.rstd);
  tape.add_noise(tokens * heads, k.rstd);
  tape.record(y, [=](Tape<Real>& t) {
    const Real* dy = t.gradient(y);
    const auto [dx, beta] = t.accumulate(qkv);
    layer_norm_backward(q, {dy, dx, beta, add_if_wanted(t, q_gain)});
    layer_norm_backward(k, {dy + width, dx + width, beta, add_if_wanted(t, k_gain)});
    add_rows(tokens, width, qkv.cols, dy + 2 * width, beta, dx + 2 * width);
  });
  return y;
}

template Var<float> query_key_norm(Tape<float>&, float, Index, Var<float>, Var<float>, Var<float>);
template Var<double> query_key_norm(Tape<double>&, double, Index, Var<double>, Var<double>, Var<double>);

}  // namespace normscope
