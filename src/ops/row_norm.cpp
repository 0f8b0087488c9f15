// Layer norm, RMS norm, group norm; formulas in kernels/norm.h. Saved: mean and rstd of each row and group.
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> row_norm(Tape<Real>& tape, const RowNorm<Real>& norm, Var<Real> x, Var<Real> gain, Var<Real> bias,
                   bool rounded) {
  const typename Tape<Real>::Op op(tape, streaming_cost<Real>("norm", x.size(), 2, 3));
  require(x.cols == norm.cols && norm.cols % norm.groups == 0, "row_norm", "x has ", x.cols,
          " features; the norm ", norm.cols, " in ", norm.groups, " groups");
  require((!gain || gain.size() == x.cols) && (!bias || bias.size() == x.cols), "row_norm",
          "gain and bias must have ", x.cols, " numbers");
  const Index rows = x.rows;

  Var<Real> y = tape.create(rows, x.cols, rounded);
  Real* mean = tape.template save<Real>(rows * norm.groups);
  Real* rstd = tape.template save<Real>(rows * norm.groups);
  norm_forward(norm, rows, x.value, gain.value, bias.value, y.stored(), mean, rstd, rounded);
  if (!tape.recording()) return y;

  tape.add_noise(rows * norm.groups, mean);
  tape.add_noise(rows * norm.groups, rstd);
  for (Index i = 0; i < y.size() && tape.noisy(); ++i) {  // y comes of these statistics too
    const Index c = i % x.cols, at = i / (x.cols / norm.groups);
    const Real normed = (x.value[i] - mean[at]) * rstd[at];
    y.value[i] = (gain ? gain.value[c] : 1) * normed + (bias ? bias.value[c] : 0);
  }
  Real* partials = tape.template save<Real>(2 * norm_blocks(rows) * x.cols);
  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> dx = t.accumulate(x);
    norm_backward(norm, rows, x.value, mean, rstd, gain.value, t.gradient(y), dx.data, dx.beta,
                  t.wants_gradient(gain) ? t.add_to(gain) : nullptr,
                  t.wants_gradient(bias) ? t.add_to(bias) : nullptr, partials);
  });
  return y;
}

template Var<float> row_norm(Tape<float>&, const RowNorm<float>&, Var<float>, Var<float>, Var<float>, bool);
template Var<double> row_norm(Tape<double>&, const RowNorm<double>&, Var<double>, Var<double>, Var<double>,
                              bool);

}  // namespace normscope
