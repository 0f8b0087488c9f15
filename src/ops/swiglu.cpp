// SwiGLU: y = silu(g) x;  dg = dy x silu'(g),  dx = dy silu(g). Saved: nothing beyond g and x.
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> swiglu(Tape<Real>& tape, Var<Real> gate, Var<Real> x) {
  const typename Tape<Real>::Op op(tape, "swiglu", x.rows, x.cols);
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

template Var<float> swiglu(Tape<float>&, Var<float>, Var<float>);
template Var<double> swiglu(Tape<double>&, Var<double>, Var<double>);

}  // namespace normscope
