// y = f(x);  dx = dy f'(x). Saved: x. And SwiGLU: y = silu(g) x;  dg = dy x silu'(g),  dx = dy silu(g).
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> activation(Tape<Real>& tape, ActivationKind kind, Var<Real> x) {
  const typename Tape<Real>::Op op(tape, streaming_cost<Real>("activation", x.size(), 2, 3));
  Var<Real> y = tape.create(x.rows, x.cols);
  activation_forward(kind, x.size(), x.value, y.value);

  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> dx = t.accumulate(x);
    activation_backward(kind, x.size(), x.value, t.gradient(y), dx.data, dx.beta);
  });
  return y;
}

template <class Real>
Var<Real> swiglu(Tape<Real>& tape, Var<Real> gate, Var<Real> x) {
  const typename Tape<Real>::Op op(tape, streaming_cost<Real>("swiglu", x.size(), 3, 5));
  require(gate.rows == x.rows && gate.cols == x.cols, "swiglu", "gate and x differ in shape");
  Var<Real> y = tape.create(x.rows, x.cols);
  swiglu_forward(x.size(), gate.value, x.value, y.value);

  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> dgate = t.accumulate(gate);
    const Accumulator<Real> dx = t.accumulate(x);
    swiglu_backward(x.size(), gate.value, x.value, t.gradient(y), dgate.data, dgate.beta, dx.data, dx.beta);
  });
  return y;
}

template Var<float> activation(Tape<float>&, ActivationKind, Var<float>);
template Var<double> activation(Tape<double>&, ActivationKind, Var<double>);
template Var<float> swiglu(Tape<float>&, Var<float>, Var<float>);
template Var<double> swiglu(Tape<double>&, Var<double>, Var<double>);

}  // namespace normscope
