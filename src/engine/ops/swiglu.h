// SwiGLU.
//
//   shapes      gate, x, y (N, F)
//   forward     y = silu(gate) x
//   backward    dgate = dy x silu'(gate),  dx = dy silu(gate)
//   saved       nothing beyond gate and x
//   source      Shazeer 2020 (arXiv 2002.05202)
#pragma once

#include "autograd/tape.h"
#include "kernels/pointwise.h"

namespace normscope {

template <class Real>
Var<Real> swiglu(Tape<Real>& tape, Var<Real> gate, Var<Real> x) {
  const typename Tape<Real>::Op op(tape, "swiglu", x.rows, x.cols);
  require(gate.rows == x.rows && gate.cols == x.cols, "swiglu", "gate and x differ in shape");
  const Var<Real> y = tape.create(x.rows, x.cols);
  swiglu_forward(x.size(), gate.data, x.data, y.data);

  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> dgate = t.accumulate(gate);
    const Accumulator<Real> dx = t.accumulate(x);
    swiglu_backward(x.size(), gate.data, x.data, t.gradient(y).data, dgate.data, dgate.beta, dx.data,
                    dx.beta);
  });
  return y;
}

}  // namespace normscope
