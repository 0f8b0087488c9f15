// Batch norm and instance norm; formulas in kernels/rows.h. Saved: mean and rstd of each group and feature.
#include <algorithm>

#include "ops/ops.h"

namespace normscope {
template <class Real>
Var<Real> batch_norm(Tape<Real>& tape, BatchNorm<Real> norm, Var<Real> x, Var<Real> gain, Var<Real> bias,
                     FeatureMoments<Real> batch) {
  const typename Tape<Real>::Op op(tape, "norm", x.rows, x.cols);
  require(norm.group_rows > 0 && x.rows % norm.group_rows == 0, "batch_norm", x.rows,
          " rows are not whole groups of ", norm.group_rows);
  const Index statistics = x.rows / norm.group_rows * x.cols;
  norm.rows = x.rows, norm.cols = x.cols;
  norm.x = x.value, norm.gain = gain.value, norm.bias = bias.value;
  for (Real** saved : {&norm.mean, &norm.variance, &norm.rstd}) *saved = tape.template save<Real>(statistics);

  Var<Real> y = tape.create(x.rows, x.cols);
  batch_norm_forward(norm, y.value);
  if (batch.mean != nullptr) {
    const Real n = static_cast<Real>(x.rows), unbiased = x.rows > 1 ? n / (n - 1) : Real(1);
    std::copy_n(norm.mean, x.cols, batch.mean);
    for (Index c = 0; c < x.cols; ++c) batch.variance[c] = norm.variance[c] * unbiased;
  }
  tape.record(y, [=](Tape<Real>& t) {
    const auto [dx, beta] = t.accumulate(x);
    batch_norm_backward(norm, {t.gradient(y), dx, beta, add_if_wanted(t, gain), add_if_wanted(t, bias)});
  });
  return y;
}

template <class Real>
Var<Real> batch_norm_inference(Tape<Real>& tape, BatchNorm<Real> norm, Var<Real> x, Var<Real> gain,
                               Var<Real> bias, FeatureMoments<Real> running) {
  require(!tape.recording(), "batchnorm", "evaluation by running statistics has no backward");
  norm.rows = x.rows, norm.cols = x.cols;
  norm.x = x.value, norm.gain = gain.value, norm.bias = bias.value;
  Var<Real> y = tape.create(x.rows, x.cols);
  batch_norm_inference(norm, running.mean, running.variance, y.value);
  return y;
}

template Var<float> batch_norm(Tape<float>&, BatchNorm<float>, Var<float>, Var<float>, Var<float>,
                               FeatureMoments<float>);
template Var<double> batch_norm(Tape<double>&, BatchNorm<double>, Var<double>, Var<double>, Var<double>,
                                FeatureMoments<double>);
template Var<float> batch_norm_inference(Tape<float>&, BatchNorm<float>, Var<float>, Var<float>, Var<float>,
                                         FeatureMoments<float>);
template Var<double> batch_norm_inference(Tape<double>&, BatchNorm<double>, Var<double>, Var<double>,
                                          Var<double>, FeatureMoments<double>);

}  // namespace normscope
