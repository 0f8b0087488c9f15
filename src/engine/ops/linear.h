// A linear layer, with or without an activation.
//
//   shapes      x (N, in), W (out, in), b (1, out) or absent -> y (N, out)
//   forward     y = x Wᵀ + b, or y = f(x Wᵀ + b) with f element by element
//   backward    dx = d W,  dW = dᵀ x,  db = column sums of d;  d = dy, or dy f'(x Wᵀ + b)
//   saved       nothing beyond x and W; with an activation, f'(x Wᵀ + b)
//   precision   all three products round their operands if mode.precision is bf16
//   source      torch.nn.Linear
#pragma once

#include <optional>

#include "autograd/tape.h"
#include "kernels/gemm/gemm.h"
#include "kernels/pointwise.h"

namespace normscope {

// `activation`, if any, follows the product; then its slope at each number is saved for the backward.
template <class Real>
Var<Real> linear(Tape<Real>& tape, GemmMode mode, Var<Real> x, Var<Real> weight, Var<Real> bias = {},
                 std::optional<Activation> activation = {}) {
  const typename Tape<Real>::Op op(tape, activation ? "linear, activation" : "linear", x.rows, x.cols,
                                   weight.rows);
  require(weight.cols == x.cols, "linear", "weight has ", weight.cols, " inputs, x has ", x.cols,
          " features");
  require(!bias || bias.size() == weight.rows, "linear", "bias has ", bias.size(), " numbers for ",
          weight.rows);
  const Var<Real> y = tape.create(x.rows, weight.rows);
  Gemm<Real> product{
      .a = x, .b = weight.t(), .c = y, .epilogue = {.bias = bias.data}, .precision = mode.precision};
  if (activation) {
    product.epilogue.activation = *activation;
    product.epilogue.derivative = {tape.template save<Real>(y.size()), y.rows, y.cols};
  }
  gemm(mode.provider, product);

  const Matrix<Real> slope = product.epilogue.derivative;
  tape.record(y, [=](Tape<Real>& t) {
    Matrix<Real> d = t.gradient(y);
    if (slope) {
      multiply(y.size(), d.data, slope.data, slope.data);  // the slope is not read again
      d = slope;
    }
    if (Real* dbias = t.add_to(bias)) sum_rows(d.rows, d.cols, d.data, dbias);
    const auto add_product = [&](const Matrix<Real>& a, const Matrix<Real>& b, const Var<Real>& input) {
      if (!t.wants_gradient(input)) return;
      const auto [sum, beta] = t.accumulate(input);
      const Matrix<Real> c(sum, input.rows, input.cols);
      gemm<Real>(mode.provider, {.a = a, .b = b, .c = c, .beta = beta, .precision = mode.precision});
    };
    add_product(d, weight, x);
    add_product(d.t(), x, weight);
  });
  return y;
}

}  // namespace normscope
