// Rotary positions: (a, b) -> (a cos - b sin, b cos + a sin) for features a = i, b = i + D/2 of each query
// and key. A rotation, so its backward is the rotation by the opposite angle. Saved: nothing.
#include "core/parallel.h"
#include "ops/ops.h"

namespace normscope {
namespace {

constexpr Index tokens_per_block = 32;

// out = beta*out + the rotation of in, by the angles whose sines are multiplied by `direction` (1 or -1).
template <class Real>
void rotate(Index tokens, Index context, Index heads, Index width, const Real* in, const Real* cosines,
            const Real* sines, Real direction, Real beta, Real* out) {
  const Index head_dim = width / heads, half = head_dim / 2;
  parallel_blocks(tokens, tokens_per_block, [&](Index begin, Index end) {
    for (Index token = begin; token < end; ++token) {
      const Real* cosine = cosines + (token % context) * half;
      const Real* sine = sines + (token % context) * half;
      const auto put = [&](Index at, Real value) { out[at] = (beta == 0 ? Real(0) : out[at]) + value; };
      for (Index head = 0; head < 2 * heads; ++head) {  // H queries, then H keys
        const Index first = token * 3 * width + head * head_dim;
        for (Index i = 0; i < half; ++i) {
          const Real a = in[first + i], b = in[first + half + i], s = direction * sine[i];
          put(first + i, a * cosine[i] - b * s);
          put(first + half + i, b * cosine[i] + a * s);
        }
      }
      for (Index i = token * 3 * width + 2 * width; i < (token + 1) * 3 * width; ++i) put(i, in[i]);
    }
  });
}

}  // namespace

template <class Real>
Var<Real> rotary(Tape<Real>& tape, Index context, Index heads, Var<Real> qkv, const Real* cosines,
                 const Real* sines, Index first_position) {
  const typename Tape<Real>::Op op(tape, streaming_cost<Real>("rotary", qkv.size(), 2, 2));
  const Index width = qkv.cols / 3;
  require(width % heads == 0 && (width / heads) % 2 == 0, "rotary", "needs an even head width; got ", width,
          " / ", heads);
  const Real* cosine = cosines + first_position * (width / heads / 2);
  const Real* sine = sines + first_position * (width / heads / 2);

  Var<Real> y = tape.create(qkv.rows, qkv.cols);
  rotate(qkv.rows, context, heads, width, qkv.value, cosine, sine, Real(1), Real(0), y.value);

  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> dx = t.accumulate(qkv);
    rotate(qkv.rows, context, heads, width, t.gradient(y), cosine, sine, Real(-1), dx.beta, dx.data);
  });
  return y;
}

template Var<float> rotary(Tape<float>&, Index, Index, Var<float>, const float*, const float*, Index);
template Var<double> rotary(Tape<double>&, Index, Index, Var<double>, const double*, const double*, Index);

}  // namespace normscope
