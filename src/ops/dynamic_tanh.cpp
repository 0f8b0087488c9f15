// Dynamic tanh; formulas in kernels/dynamic_tanh.h. Saved: nothing beyond x.
#include "kernels/dynamic_tanh.h"

#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> dynamic_tanh(Tape<Real>& tape, Var<Real> x, Var<Real> alpha, Var<Real> gain, Var<Real> bias) {
  const typename Tape<Real>::Op op(tape, streaming_cost<Real>("norm", x.size(), 2, 3));
  require(alpha.size() == 1, "dynamic_tanh", "alpha must be one number; got ", alpha.size());
  const Index rows = x.rows, cols = x.cols;

  Var<Real> y = tape.create(rows, cols);
  dynamic_tanh_forward(rows, cols, *alpha.value, x.value, gain.value, bias.value, y.value);
  if (!tape.recording()) return y;

  Real* partials = tape.template save<Real>(dynamic_tanh_scratch(rows, cols));
  tape.record(y, [=](Tape<Real>& t) {
    const auto sum = [&](const Var<Real>& v) { return v && t.wants_gradient(v) ? t.add_to(v) : nullptr; };
    const Accumulator<Real> dx = t.accumulate(x);
    dynamic_tanh_backward(rows, cols, *alpha.value, x.value, gain.value, t.gradient(y), dx.data, dx.beta,
                          sum(alpha), sum(gain), sum(bias), partials);
  });
  return y;
}

template Var<float> dynamic_tanh(Tape<float>&, Var<float>, Var<float>, Var<float>, Var<float>);
template Var<double> dynamic_tanh(Tape<double>&, Var<double>, Var<double>, Var<double>, Var<double>);

}  // namespace normscope
