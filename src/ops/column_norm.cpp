// Batch norm and instance norm; formulas in kernels/column_norm.h. Saved: mean and rstd of each group and
// feature.
#include "kernels/column_norm.h"

#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> column_norm(Tape<Real>& tape, const ColumnNorm<Real>& norm, Var<Real> x, Var<Real> gain,
                      Var<Real> bias, RunningStatistics<Real> running) {
  const typename Tape<Real>::Op op(tape, streaming_cost<Real>("norm", x.size(), 2, 3));
  require(x.cols == norm.cols && norm.group_rows > 0 && x.rows % norm.group_rows == 0, "column_norm",
          "x is (", x.rows, ", ", x.cols, "); the norm takes ", norm.cols, " features and groups of ",
          norm.group_rows, " rows");
  const Index rows = x.rows, groups = rows / norm.group_rows, cols = norm.cols;
  Real* mean = tape.template save<Real>(groups * cols);
  Real* variance = tape.template save<Real>(groups * cols);
  Real* rstd = tape.template save<Real>(groups * cols);

  Var<Real> y = tape.create(rows, cols);
  column_norm_forward(norm, rows, x.value, gain.value, bias.value, y.value, mean, variance, rstd);
  if (running.mean_change != nullptr) {
    // What the statistics will change by: they move only when the step is taken. The running variance is
    // unbiased.
    const Real n = static_cast<Real>(rows), unbiased = rows > 1 ? n / (n - 1) : Real(1);
    const auto move = [](Real value, Real& change, Real batch) {
      change += static_cast<Real>(running_momentum) * (batch - (value + change));
    };
    for (Index c = 0; c < cols; ++c) {
      move(running.mean[c], running.mean_change[c], mean[c]);
      move(running.variance[c], running.variance_change[c], variance[c] * unbiased);
    }
  }

  tape.add_noise(groups * cols, mean);
  tape.add_noise(groups * cols, rstd);
  for (Index i = 0; i < y.size() && tape.noisy(); ++i) {  // y comes of these statistics too
    const Index c = i % cols, at = i / (norm.group_rows * cols) * cols + c;
    const Real normed = (x.value[i] - mean[at]) * rstd[at];
    y.value[i] = (gain ? gain.value[c] : 1) * normed + (bias ? bias.value[c] : 0);
  }
  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> dx = t.accumulate(x);
    column_norm_backward(norm, rows, x.value, mean, rstd, gain.value, t.gradient(y), dx.data, dx.beta,
                         gain && t.wants_gradient(gain) ? t.add_to(gain) : nullptr,
                         bias && t.wants_gradient(bias) ? t.add_to(bias) : nullptr);
  });
  return y;
}

template <class Real>
Var<Real> batch_norm_inference(Tape<Real>& tape, const ColumnNorm<Real>& norm, Var<Real> x, Var<Real> gain,
                               Var<Real> bias, RunningStatistics<Real> running) {
  require(!tape.recording(), "batchnorm", "evaluation by running statistics has no backward");
  Var<Real> y = tape.create(x.rows, x.cols);
  column_affine(norm, x.rows, x.value, running.mean, running.variance, gain.value, bias.value, y.value);
  return y;
}

template Var<float> column_norm(Tape<float>&, const ColumnNorm<float>&, Var<float>, Var<float>, Var<float>,
                                RunningStatistics<float>);
template Var<double> column_norm(Tape<double>&, const ColumnNorm<double>&, Var<double>, Var<double>,
                                 Var<double>, RunningStatistics<double>);
template Var<float> batch_norm_inference(Tape<float>&, const ColumnNorm<float>&, Var<float>, Var<float>,
                                         Var<float>, RunningStatistics<float>);
template Var<double> batch_norm_inference(Tape<double>&, const ColumnNorm<double>&, Var<double>, Var<double>,
                                          Var<double>, RunningStatistics<double>);

}  // namespace normscope
