// Rotary position embedding (RoPE).
//
//   shapes      qkv, y (N, 3C: q, k, v); cosines, sines (positions, D/2), constants
//   forward     features a = i, b = i + D/2 of each query and key turn by the angle of position and pair:
//               (a, b) -> (a cos - b sin, b cos + a sin); values pass
//   backward    the rotation of dy by the opposite angle
//   saved       nothing
//   source      Su et al. 2021 (arXiv 2104.09864), halves rotated as in GPT-NeoX
#pragma once

#include "autograd/tape.h"
#include "core/parallel.h"

namespace normscope {

template <class Real>
struct Rotation {
  Index tokens, context, heads, width;  // width: C, of queries, of keys and of values
  const Real *cosines, *sines;          // (context, D/2)
};

// out = beta*out + the rotation of in, by the opposite angles in the backward.
template <class Real>
void rotate(const Rotation<Real>& r, bool backward, const Real* in, Real beta, Real* out) {
  constexpr Index tokens_per_block = 32;
  const Index head_dim = r.width / r.heads, half = head_dim / 2;
  parallel_blocks(r.tokens, tokens_per_block, [&](Index begin, Index end) {
    for (Index token = begin; token < end; ++token) {
      const Real* cosine = r.cosines + token % r.context * half;
      const Real* sine = r.sines + token % r.context * half;
      const auto put = [&](Index at, Real value) { out[at] = (beta == 0 ? Real(0) : out[at]) + value; };
      for (Index head = 0; head < 2 * r.heads; ++head) {  // H queries, then H keys
        const Index first = token * 3 * r.width + head * head_dim;
        for (Index i = 0; i < half; ++i) {
          const Real a = in[first + i], b = in[first + half + i], s = backward ? -sine[i] : sine[i];
          put(first + i, a * cosine[i] - b * s);
          put(first + half + i, b * cosine[i] + a * s);
        }
      }
      for (Index i = (3 * token + 2) * r.width; i < (3 * token + 3) * r.width; ++i) put(i, in[i]);
    }
  });
}

template <class Real>
Var<Real> rotary(Tape<Real>& tape, Index context, Index heads, Var<Real> qkv, const Real* cosines,
                 const Real* sines, Index first_position = 0) {
  const typename Tape<Real>::Op op(tape, "rotary", qkv.rows, qkv.cols);
  const Index width = qkv.cols / 3, half = width / heads / 2, first = first_position * half;
  require(width == 2 * half * heads, "rotary", "needs an even head width; got ", width, " / ", heads);
  const Rotation<Real> rotation{qkv.rows, context, heads, width, cosines + first, sines + first};
  const Var<Real> y = tape.create(qkv.rows, qkv.cols);
  rotate(rotation, false, qkv.data, Real(0), y.data);

  tape.record(y, [=](Tape<Real>& t) {
    const auto [dx, beta] = t.accumulate(qkv);
    rotate(rotation, true, t.gradient(y).data, beta, dx);
  });
  return y;
}

}  // namespace normscope
