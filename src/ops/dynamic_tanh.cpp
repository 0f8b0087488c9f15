// Dynamic tanh; formulas in kernels/rows.h. Saved: nothing beyond x.
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> dynamic_tanh(Tape<Real>& tape, Var<Real> x, Var<Real> alpha, Var<Real> gain, Var<Real> bias) {
  const typename Tape<Real>::Op op(tape, "norm", x.rows, x.cols);
  require(alpha.size() == 1, "dynamic_tanh", "alpha must be one number; got ", alpha.size());
  const DynamicTanh<Real> dyt{x.rows, x.cols, *alpha.value, x.value, gain.value, bias.value};
  Var<Real> y = tape.create(x.rows, x.cols);
  dynamic_tanh_forward(dyt, y.value);

  tape.record(y, [=](Tape<Real>& t) {
    const auto [dx, beta] = t.accumulate(x);
    dynamic_tanh_backward(dyt, {t.gradient(y), dx, beta, add_if_wanted(t, gain), add_if_wanted(t, bias),
                                add_if_wanted(t, alpha)});
  });
  return y;
}

template Var<float> dynamic_tanh(Tape<float>&, Var<float>, Var<float>, Var<float>, Var<float>);
template Var<double> dynamic_tanh(Tape<double>&, Var<double>, Var<double>, Var<double>, Var<double>);

}  // namespace normscope
