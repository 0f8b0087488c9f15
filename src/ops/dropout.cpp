// y = x M / (1-p), M the mask;  dx = dy M / (1-p). Saved: nothing, the mask is a function of the stream.
#include "core/parallel.h"
#include "ops/ops.h"

namespace normscope {
namespace {

// out = beta*out + in M / (1-p), sequence by sequence.
template <class Real>
void apply_mask(const Dropout& drop, Index rows, Index cols, const Real* in, Real beta, Real* out) {
  const Real scale = static_cast<Real>(1 / (1 - drop.p));
  const Index per_sequence = drop.context * cols;
  parallel_for(rows / drop.context, [&](Index sequence) {
    const RandomStream stream = drop.stream.at(static_cast<std::uint64_t>(drop.first_sequence + sequence));
    const Index first = sequence * per_sequence;
    for (Index i = 0; i < per_sequence; ++i) {
      const Real factor = stream.uniform(static_cast<std::uint64_t>(i)) < drop.p ? Real(0) : scale;
      out[first + i] = (beta == 0 ? Real(0) : out[first + i]) + in[first + i] * factor;
    }
  });
}

}  // namespace

template <class Real>
Var<Real> dropout(Tape<Real>& tape, const Dropout& drop, Var<Real> x) {
  if (drop.p == 0) return x;
  const typename Tape<Real>::Op op(tape, "dropout", x.rows, x.cols);
  require(x.rows % drop.context == 0, "dropout", x.rows, " rows are not whole sequences of ", drop.context);

  Var<Real> y = tape.create(x.rows, x.cols);
  apply_mask(drop, x.rows, x.cols, x.value, Real(0), y.value);

  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> dx = t.accumulate(x);
    apply_mask(drop, x.rows, x.cols, t.gradient(y), dx.beta, dx.data);
  });
  return y;
}

template Var<float> dropout(Tape<float>&, const Dropout&, Var<float>);
template Var<double> dropout(Tape<double>&, const Dropout&, Var<double>);

}  // namespace normscope
