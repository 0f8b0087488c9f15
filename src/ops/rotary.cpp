// Rotary positions: (a, b) -> (a cos - b sin, b cos + a sin) for features a = i, b = i + D/2 of each query
// and key. A rotation, so its backward is the rotation by the opposite angle. Saved: nothing.
#include "core/parallel.h"
#include "ops/ops.h"

namespace normscope {
namespace {

constexpr Index tokens_per_block = 32;

template <class Real>
struct Rotation {
  Index tokens, context, heads, width;  // width: C, of queries, of keys and of values
  const Real *cosines, *sines;          // (context, D/2)
};

// out = beta*out + the rotation of in, backwards by the opposite angles.
template <class Real>
void rotate(const Rotation<Real>& r, bool backwards, const Real* in, Real beta, Real* out) {
  const Index head_dim = r.width / r.heads, half = head_dim / 2;
  parallel_blocks(r.tokens, tokens_per_block, [&](Index begin, Index end) {
    for (Index token = begin; token < end; ++token) {
      const Real* cosine = r.cosines + token % r.context * half;
      const Real* sine = r.sines + token % r.context * half;
      const auto put = [&](Index at, Real value) { out[at] = (beta == 0 ? Real(0) : out[at]) + value; };
      for (Index head = 0; head < 2 * r.heads; ++head) {  // H queries, then H keys
        const Index first = token * 3 * r.width + head * head_dim;
        for (Index i = 0; i < half; ++i) {
          const Real a = in[first + i], b = in[first + half + i], s = backwards ? -sine[i] : sine[i];
          put(first + i, a * cosine[i] - b * s);
          put(first + half + i, b * cosine[i] + a * s);
        }
      }
      for (Index i = (3 * token + 2) * r.width; i < (3 * token + 3) * r.width; ++i) put(i, in[i]);
    }
  });
}

}  // namespace

template <class Real>
Var<Real> rotary(Tape<Real>& tape, Index context, Index heads, Var<Real> qkv, const Real* cosines,
                 const Real* sines, Index first_position) {
  const typename Tape<Real>::Op op(tape, "rotary", qkv.rows, qkv.cols);
  const Index width = qkv.cols / 3, half = width / heads / 2, first = first_position * half;
  require(width == 2 * half * heads, "rotary", "needs an even head width; got ", width, " / ", heads);
  const Rotation<Real> rotation{qkv.rows, context, heads, width, cosines + first, sines + first};

  Var<Real> y = tape.create(qkv.rows, qkv.cols);
  rotate(rotation, false, qkv.value, Real(0), y.value);

  tape.record(y, [=](Tape<Real>& t) {
    const auto [dx, beta] = t.accumulate(qkv);
    rotate(rotation, true, t.gradient(y), beta, dx);
  });
  return y;
}

template Var<float> rotary(Tape<float>&, Index, Index, Var<float>, const float*, const float*, Index);
template Var<double> rotary(Tape<double>&, Index, Index, Var<double>, const double*, const double*, Index);

}  // namespace normscope
