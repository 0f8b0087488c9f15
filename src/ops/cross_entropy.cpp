// loss = mean over rows of logsumexp(z) - z[target];  dz = (softmax(z) - onehot(target)) dloss / N.
// Saved: maximum and sum of each row. The mean is summed in double, row by row.
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> cross_entropy(Tape<Real>& tape, Var<Real> logits, std::span<const std::int32_t> targets) {
  const typename Tape<Real>::Op op(tape, "cross-entropy", logits.rows, logits.cols);
  const Index rows = logits.rows;
  require(std::ssize(targets) == rows, "cross_entropy", rows, " rows of logits, ", targets.size(),
          " targets");
  Real* row_loss = tape.template save<Real>(rows);
  const SoftmaxStats<Real> stats{tape.template save<Real>(rows), tape.template save<Real>(rows)};
  const CrossEntropy<Real> ce{rows, logits.cols, logits.value, targets.data(), stats};
  cross_entropy_forward(ce, row_loss);
  double total = 0;
  for (Index row = 0; row < rows; ++row) total += row_loss[row];

  Var<Real> loss = tape.create(1, 1);
  *loss.value = static_cast<Real>(total / static_cast<double>(rows));
  tape.record(loss, [=](Tape<Real>& t) {
    const auto [d, beta] = t.accumulate(logits);
    cross_entropy_backward(ce, *t.gradient(loss) / static_cast<Real>(rows), d, beta);
  });
  return loss;
}

template Var<float> cross_entropy(Tape<float>&, Var<float>, std::span<const std::int32_t>);
template Var<double> cross_entropy(Tape<double>&, Var<double>, std::span<const std::int32_t>);

}  // namespace normscope
