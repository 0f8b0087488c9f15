// A linear layer, and one with its activation.
//
//   shapes      x (N, in), W (out, in), b (1, out) or absent -> y (N, out)
//   forward     y = x Wᵀ + b, or y = f(x Wᵀ + b) with f element by element
//   backward    dx = d W,  dW = dᵀ x,  db = column sums of d;  d = dy, or dy f'(x Wᵀ + b)
//   saved       nothing beyond x and W; with an activation, f'(x Wᵀ + b)
//   precision   all three products round their operands if mode.precision is bf16
//   source      torch.nn.Linear
#pragma once

#include "autograd/tape.h"
#include "kernels/gemm/gemm.h"

namespace normscope {

template <class Real>
void require_linear_shapes(const Var<Real>& x, const Var<Real>& weight, const Var<Real>& bias) {
  require(weight.cols == x.cols, "linear", "weight has ", weight.cols, " inputs, x has ", x.cols,
          " features");
  require(!bias || bias.size() == weight.rows, "linear", "bias has ", bias.size(), " numbers for ",
          weight.rows);
}

template <class Real>
void linear_backward(Tape<Real>& t, GemmMode mode, const Matrix<Real>& dy, Var<Real> x, Var<Real> weight,
                     Var<Real> bias) {
  if (Real* dbias = t.add_to(bias)) sum_rows(dy.rows, dy.cols, dy.data, dbias);
  const auto add_product = [&](const Matrix<Real>& a, const Matrix<Real>& b, const Var<Real>& input) {
    if (!t.wants_gradient(input)) return;
    const auto [sum, beta] = t.accumulate(input);
    const Matrix<Real> c(sum, input.rows, input.cols);
    gemm<Real>(mode.provider, {.a = a, .b = b, .c = c, .beta = beta, .precision = mode.precision});
  };
  add_product(dy, weight, x);
  add_product(dy.t(), x, weight);
}

template <class Real>
Var<Real> linear(Tape<Real>& tape, GemmMode mode, Var<Real> x, Var<Real> weight, Var<Real> bias = {}) {
  const typename Tape<Real>::Op op(tape, "linear", x.rows, x.cols, weight.rows);
  require_linear_shapes(x, weight, bias);
  const Var<Real> y = tape.create(x.rows, weight.rows);
  gemm<Real>(mode.provider,
             {.a = x, .b = weight.t(), .c = y, .epilogue = {.bias = bias.data}, .precision = mode.precision});

  tape.record(y, [=](Tape<Real>& t) { linear_backward(t, mode, t.gradient(y), x, weight, bias); });
  return y;
}

template <class Real>
Var<Real> activated_linear(Tape<Real>& tape, GemmMode mode, Activation activation, Var<Real> x,
                           Var<Real> weight, Var<Real> bias = {}) {
  const typename Tape<Real>::Op op(tape, "linear, activation", x.rows, x.cols, weight.rows);
  require_linear_shapes(x, weight, bias);
  const Var<Real> y = tape.create(x.rows, weight.rows);
  const Matrix<Real> slope(tape.template save<Real>(y.size()), y.rows, y.cols);
  gemm<Real>(mode.provider, {.a = x,
                             .b = weight.t(),
                             .c = y,
                             .epilogue = {.bias = bias.data, .derivative = slope, .activation = activation},
                             .precision = mode.precision});

  tape.record(y, [=](Tape<Real>& t) {
    multiply(y.size(), t.gradient(y).data, slope.data, slope.data);  // the slope is not read again
    linear_backward(t, mode, slope, x, weight, bias);
  });
  return y;
}

}  // namespace normscope
