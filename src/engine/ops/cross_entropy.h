// The loss: the mean over rows of -log softmax(z)[target], in nats.
//
//   shapes      z (N, V), targets N -> loss (1, 1)
//   forward     loss = mean over rows of logsumexp(z) - z[target], summed in double
//   backward    dz = (softmax(z) - onehot(target)) dloss / N
//   saved       maximum and sum of each row's softmax
//   source      torch.nn.functional.cross_entropy
#pragma once

#include <algorithm>
#include <span>

#include "autograd/tape.h"
#include "kernels/rows.h"

namespace normscope {

// `mean`, if any, receives the loss before it is rounded to Real.
template <class Real>
Var<Real> cross_entropy(Tape<Real>& tape, Var<Real> logits, std::span<const std::int32_t> targets,
                        double* mean = nullptr) {
  const typename Tape<Real>::Op op(tape, "cross-entropy", logits.rows, logits.cols);
  const Index rows = logits.rows;
  require(std::ssize(targets) == rows, "cross_entropy", rows, " rows of logits, ", targets.size(),
          " targets");
  require(std::ranges::all_of(targets, [&](std::int32_t id) { return id >= 0 && id < logits.cols; }),
          "cross_entropy", "a target is not below ", logits.cols, ", the number of classes");
  Real* row_loss = tape.template save<Real>(rows);
  const SoftmaxStats<Real> stats{tape.template save<Real>(rows), tape.template save<Real>(rows)};
  const CrossEntropy<Real> ce{rows, logits.cols, logits.data, targets.data(), stats};
  cross_entropy_forward(ce, row_loss);
  double total = 0;
  for (Index row = 0; row < rows; ++row) total += row_loss[row];
  total /= static_cast<double>(rows);
  if (mean != nullptr) *mean = total;
  const Var<Real> loss = tape.create(1, 1);
  *loss.data = static_cast<Real>(total);

  tape.record(loss, [=](Tape<Real>& t) {
    const auto [d, beta] = t.accumulate(logits);
    cross_entropy_backward(ce, *t.gradient(loss).data / static_cast<Real>(rows), d, beta);
  });
  return loss;
}

}  // namespace normscope
