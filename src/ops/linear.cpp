// y = x Wᵀ + b;  dx = dy W,  dW = dyᵀ x,  db = column sums of dy. Saved: nothing beyond x and W.
// And y = f(x Wᵀ + b): the same with dy f'(x Wᵀ + b) for dy. Saved: that derivative.
// x, y and their gradients may be bf16; W, dW and db are not.
#include "core/scratch.h"
#include "kernels/bf16.h"
#include "ops/ops.h"

namespace normscope {
namespace {

template <class Real>
void require_shapes(Var<Real> x, Var<Real> weight, Var<Real> bias) {
  require(weight.cols == x.cols, "linear", "weight has ", weight.cols, " inputs, x has ", x.cols,
          " features");
  require(!bias || bias.size() == weight.rows, "linear", "bias has ", bias.size(), " numbers for ",
          weight.rows);
}

// dy as the provider reads its operands: converted once for the products of dx and of dW.
template <class Real>
Matrix<Real> as_operand(GemmProvider provider, const Matrix<Real>& dy) {
  const DType dtype = operand_dtype<Real>(provider);
  if (dy.dtype() == dtype) return dy;
  struct Operand;
  const auto bytes = static_cast<Index>(matrix_bytes<Real>(dy.rows, dy.cols, dtype));
  const auto operand = matrix_at<Real>(thread_scratch<std::byte, Operand>(bytes), dy.rows, dy.cols, dtype);
  to_bf16(dy, operand);
  return operand;
}

template <class Real>
void add_to_bias(const Matrix<Real>& dy, Real* dbias) {
  if (dy.value != nullptr) return sum_rows(dy.rows, dy.cols, dy.value, dbias);
  struct Dense;
  Real* dense = thread_scratch<Real, Dense>(dy.size());
  to_float(dy, dense);
  sum_rows(dy.rows, dy.cols, dense, dbias);
}

template <class Real>
void linear_backward(Tape<Real>& t, GemmProvider provider, const Matrix<Real>& dy, Var<Real> x,
                     Var<Real> weight, Var<Real> bias) {
  if (bias && t.wants_gradient(bias)) add_to_bias(dy, t.add_to(bias));
  const Matrix<Real> operand = as_operand(provider, dy);
  if (t.wants_gradient(x)) {
    const MatrixAccumulator<Real> dx = t.accumulate_matrix(x);
    gemm<Real>(provider, {.a = operand, .b = weight, .c = dx.matrix, .beta = dx.beta});
  }
  if (t.wants_gradient(weight)) {
    const MatrixAccumulator<Real> dw = t.accumulate_matrix(weight);
    gemm<Real>(provider, {.a = operand.t(), .b = x, .c = dw.matrix, .beta = dw.beta});
  }
}

}  // namespace

template <class Real>
Var<Real> linear(Tape<Real>& tape, GemmProvider gemm_provider, Var<Real> x, Var<Real> weight, Var<Real> bias,
                 DType dtype) {
  const typename Tape<Real>::Op op(tape, "linear", x.rows, x.cols, weight.rows);
  require_shapes(x, weight, bias);
  Var<Real> y = tape.create(x.rows, weight.rows, dtype, dtype);
  gemm<Real>(gemm_provider, {.a = x, .b = weight.t(), .c = y, .epilogue = {.bias = bias.value}});

  tape.record(
      y, [=](Tape<Real>& t) { linear_backward(t, gemm_provider, t.gradient_matrix(y), x, weight, bias); });
  return y;
}

template <class Real>
Var<Real> activated_linear(Tape<Real>& tape, GemmProvider gemm_provider, Activation activation,
                           Var<Real> x, Var<Real> weight, Var<Real> bias, DType dtype) {
  const typename Tape<Real>::Op op(tape, "linear, activation", x.rows, x.cols, weight.rows);
  require(activation != Activation::swiglu, "activated_linear", "swiglu has two inputs");
  require_shapes(x, weight, bias);
  Var<Real> y = tape.create(x.rows, weight.rows, dtype, dtype);
  const Matrix<Real> derivative = tape.matrix(y.rows, y.cols, dtype);
  gemm<Real>(gemm_provider,
             {.a = x,
              .b = weight.t(),
              .c = y,
              .epilogue = {.bias = bias.value, .derivative = derivative, .activation = activation}});

  tape.record(y, [=](Tape<Real>& t) {
    multiply(t.gradient_matrix(y), derivative, derivative);  // nobody reads the derivative again
    linear_backward(t, gemm_provider, derivative, x, weight, bias);
  });
  return y;
}

template Var<float> linear(Tape<float>&, GemmProvider, Var<float>, Var<float>, Var<float>, DType);
template Var<double> linear(Tape<double>&, GemmProvider, Var<double>, Var<double>, Var<double>, DType);
template Var<float> activated_linear(Tape<float>&, GemmProvider, Activation, Var<float>, Var<float>,
                                     Var<float>, DType);
template Var<double> activated_linear(Tape<double>&, GemmProvider, Activation, Var<double>, Var<double>,
                                      Var<double>, DType);

}  // namespace normscope
