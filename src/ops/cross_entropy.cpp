// loss = mean over rows of logsumexp(z) - z[target];  dz = (softmax(z) - onehot(target)) dloss / N.
// Saved: maximum and sum of each row. The mean is summed in double, row by row.
#include "kernels/cross_entropy.h"

#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> cross_entropy(Tape<Real>& tape, Var<Real> logits, std::span<const std::int32_t> targets) {
  const typename Tape<Real>::Op op(tape, streaming_cost<Real>("cross-entropy", logits.size(), 1, 2));
  const Index rows = logits.rows;
  require(static_cast<Index>(targets.size()) == rows, "cross_entropy", rows, " rows of logits, ",
          targets.size(), " targets");
  const std::int32_t* ids = targets.data();
  Real* row_loss = tape.template save<Real>(rows);
  const SoftmaxStats<Real> stats{tape.template save<Real>(rows), tape.template save<Real>(rows)};
  cross_entropy_forward(rows, logits.cols, logits.value, ids, row_loss, stats);
  double total = 0;
  for (Index row = 0; row < rows; ++row) total += row_loss[row];

  Var<Real> loss = tape.create(1, 1);
  *loss.value = static_cast<Real>(total / static_cast<double>(rows));
  tape.add_noise(rows, stats.sum);
  tape.record(loss, [=](Tape<Real>& t) {
    const Accumulator<Real> d = t.accumulate(logits);
    const Real factor = *t.gradient(loss) / static_cast<Real>(rows);
    cross_entropy_backward(rows, logits.cols, logits.value, ids, stats, factor, d.data, d.beta);
  });
  return loss;
}

template Var<float> cross_entropy(Tape<float>&, Var<float>, std::span<const std::int32_t>);
template Var<double> cross_entropy(Tape<double>&, Var<double>, std::span<const std::int32_t>);

}  // namespace normscope
