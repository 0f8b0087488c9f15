// RMS norm over D of each head's query and key. A token's queries are H rows of D numbers, and so are its
// keys, so the row norm's kernels serve, token by token. Saved: rstd of each token, of q and k, and head.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/elementwise.h"
#include "kernels/simd.h"
#include "ops/ops.h"

namespace normscope {
namespace {

constexpr Index tokens_per_block = 32;

}  // namespace

template <class Real>
Var<Real> query_key_norm(Tape<Real>& tape, Real eps, Index heads, Var<Real> qkv, Var<Real> q_gain,
                         Var<Real> k_gain) {
  const typename Tape<Real>::Op op(tape, streaming_cost<Real>("qk_norm", qkv.size(), 2, 3));
  const Index tokens = qkv.rows, width = qkv.cols / 3, head_dim = width / heads;
  require(q_gain.size() == head_dim && k_gain.size() == head_dim, "query_key_norm", "gains must have ",
          head_dim, " numbers; got ", q_gain.size(), " and ", k_gain.size());
  const RowNorm<Real> norm{head_dim, 1, false, eps, false};

  Var<Real> y = tape.create(tokens, qkv.cols);
  Real* mean = tape.template save<Real>(tokens * 2 * heads);  // zeros: RMS norm has no mean
  Real* rstd = tape.template save<Real>(tokens * 2 * heads);
  parallel_blocks(tokens, tokens_per_block, [&](Index begin, Index end) {
    for (Index token = begin; token < end; ++token) {
      const Real* x = qkv.value + token * qkv.cols;
      Real* out = y.value + token * qkv.cols;
      for (Index part = 0; part < 2; ++part) {
        const Index saved = (token * 2 + part) * heads;
        simd<Real>().norm_forward(norm, 0, heads, x + part * width, (part == 0 ? q_gain : k_gain).value,
                                  nullptr, out + part * width, mean + saved, rstd + saved);
      }
      std::copy_n(x + 2 * width, width, out + 2 * width);
    }
  });
  if (!tape.recording()) return y;

  tape.add_noise(tokens * 2 * heads, rstd);
  const Index blocks = block_count(tokens, tokens_per_block);
  Real* partials = tape.template save<Real>(2 * blocks * head_dim);
  tape.record(y, [=](Tape<Real>& t) {
    const Real* dy = t.gradient(y);
    const Accumulator<Real> dx = t.accumulate(qkv);
    std::fill_n(partials, 2 * blocks * head_dim, Real(0));
    parallel_blocks(tokens, tokens_per_block, [&](Index begin, Index end) {
      for (Index token = begin; token < end; ++token) {
        const Index row = token * qkv.cols;
        for (Index part = 0; part < 2; ++part) {
          const Index saved = (token * 2 + part) * heads, at = row + part * width;
          Real* dgain = partials + (part * blocks + begin / tokens_per_block) * head_dim;
          simd<Real>().norm_backward(norm, 0, heads, qkv.value + at, mean + saved, rstd + saved,
                                     (part == 0 ? q_gain : k_gain).value, dy + at, dx.data + at, dx.beta,
                                     dgain, nullptr);
        }
        simd<Real>().scale_add(width, Real(1), dy + row + 2 * width, dx.beta, dx.data + row + 2 * width);
      }
    });
    if (t.wants_gradient(q_gain)) add_rows(blocks, head_dim, partials, t.add_to(q_gain));
    if (t.wants_gradient(k_gain)) add_rows(blocks, head_dim, partials + blocks * head_dim, t.add_to(k_gain));
  });
  return y;
}

template Var<float> query_key_norm(Tape<float>&, float, Index, Var<float>, Var<float>, Var<float>);
template Var<double> query_key_norm(Tape<double>&, double, Index, Var<double>, Var<double>, Var<double>);

}  // namespace normscope
