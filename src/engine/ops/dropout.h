// Dropout.
//
//   shapes      x, y (N, C), N = sequences * context
//   forward     y = x M / (1-p), M = 0 with probability p, else 1; p = 0 returns x itself
//   backward    dx = dy M / (1-p)
//   saved       nothing: M is a function of the stream, the sequence and the element's number in it, t C + c
//   stream      in training RandomStream(seed, "dropout").at(step).at(dropout_sites layer + DropoutSite), then
//               .at(sequence of the step's batch), whatever thread, micro-batch or rank computes it
//   elsewhere   attention's kernel (kernels/attention.cpp) drops weights itself: its element's number is that of
//               (head, query, key)
//   source      Srivastava et al. 2014; torch.nn.Dropout
#pragma once

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/random.h"

namespace normscope {

struct Dropout {
  double p = 0;
  RandomStream stream{0, ""};
  Index context = 1;         // rows per sequence
  Index first_sequence = 0;  // number of sequence 0 in the whole step's batch
};

// out = beta*out + in M / (1-p), sequence by sequence.
template <class Real>
void apply_dropout_mask(const Dropout& drop, Index rows, Index cols, const Real* in, Real beta, Real* out) {
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

template <class Real>
Var<Real> dropout(Tape<Real>& tape, const Dropout& drop, Var<Real> x) {
  if (drop.p == 0) return x;
  const typename Tape<Real>::Op op(tape, "dropout", x.rows, x.cols);
  require(x.rows % drop.context == 0, "dropout", x.rows, " rows are not whole sequences of ", drop.context);
  const Var<Real> y = tape.create(x.rows, x.cols);
  apply_dropout_mask(drop, x.rows, x.cols, x.data, Real(0), y.data);

  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> dx = t.accumulate(x);
    apply_dropout_mask(drop, x.rows, x.cols, t.gradient(y).data, dx.beta, dx.data);
  });
  return y;
}

}  // namespace normscope
