// Layer norm, RMS norm, group norm; formulas in kernels/rows.h. Saved: mean and rstd of each row and group.
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> layer_norm(Tape<Real>& tape, LayerNorm<Real> norm, Var<Real> x, Var<Real> gain, Var<Real> bias,
                     DType dtype) {
  const typename Tape<Real>::Op op(tape, "norm", x.rows, x.cols);
  require(x.cols % norm.groups == 0, "layer_norm", x.cols, " features in ", norm.groups, " groups");
  require((!gain || gain.size() == x.cols) && (!bias || bias.size() == x.cols), "layer_norm",
          "gain and bias must have ", x.cols, " numbers");
  norm.rows = x.rows, norm.cols = norm.stride = x.cols;
  norm.x = x.value, norm.gain = gain.value, norm.bias = bias.value;
  norm.mean = tape.template save<Real>(x.rows * norm.groups);
  norm.rstd = tape.template save<Real>(x.rows * norm.groups);

  Var<Real> y = tape.create(x.rows, x.cols, dtype);
  layer_norm_forward<Real>(norm, y);

  tape.record(y, [=](Tape<Real>& t) {
    const auto [dx, beta] = t.accumulate(x);
    layer_norm_backward(norm, {t.gradient(y), dx, beta, add_if_wanted(t, gain), add_if_wanted(t, bias)});
  });
  return y;
}

template Var<float> layer_norm(Tape<float>&, LayerNorm<float>, Var<float>, Var<float>, Var<float>, DType);
template Var<double> layer_norm(Tape<double>&, LayerNorm<double>, Var<double>, Var<double>, Var<double>,
                                DType);

}  // namespace normscope
