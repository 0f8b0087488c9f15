// Elementwise kernels: activations, sums and products of arrays, their statistics, optimisers'
// updates. Parallel over blocks of fixed size; sums add their blocks in order.
#pragma once

#include "core/types.h"

namespace normscope {

// relu: max(0, x). relu2: its square (So et al. 2021, arXiv 2109.08668). gelu: x Φ(x), Φ the normal
// distribution function (Hendrycks & Gimpel 2016), by erf. gelu_tanh: their tanh approximation, GPT-2's.
// silu: x/(1 + e^-x). swiglu: silu(gate) * x, of two inputs (Shazeer 2020), no function of one.
enum class Activation { relu, gelu, gelu_tanh, silu, swiglu, relu2 };

// y = silu(gate) * x.
template <class Real>
void swiglu_forward(Index n, const Real* gate, const Real* x, Real* y);

// dgate = gate_beta*dgate + ..., then dx = beta*dx + ...; the two may be one array.
template <class Real>
void swiglu_backward(Index n, const Real* gate, const Real* x, const Real* dy, Real* dgate, Real gate_beta,
                     Real* dx, Real beta);

// x = 0.
template <class Real>
void fill_zero(Index n, Real* x);

// y = alpha*x + beta*y; y is not read when beta is 0.
template <class Real>
void axpby(Index n, Real alpha, const Real* x, Real beta, Real* y);

// y = x + beta*y for each of `rows` rows of `cols` numbers, `stride` apart in both.
template <class Real>
void add_rows(Index rows, Index cols, Index stride, const Real* x, Real beta, Real* y);

// y = alpha*a + b.
template <class Real>
void axpy(Index n, Real alpha, const Real* a, const Real* b, Real* y);

// y = a*b, element by element; y may be either.
template <class Real>
void multiply(Index n, const Real* a, const Real* b, Real* y);

// sum += the sum over rows of x (rows, cols), column by column.
template <class Real>
void sum_rows(Index rows, Index cols, const Real* x, Real* sum);

// The sum of a[i]*b[i], accumulated in double.
template <class Real>
double dot(Index n, const Real* a, const Real* b);

// The sum of x[i]². Squares of floats neither underflow nor overflow in it.
template <class Real>
double sum_squares(Index n, const Real* x);

// Statistics of a tensor for layers.csv; squares as in sum_squares().
struct TensorStats {
  double sum = 0, sum_squares = 0;
  double abs_max = 0;  // NaN is left out
  Index nonfinite = 0;
  Index count = 0;

  void operator+=(const TensorStats& other);
};

template <class Real>
TensorStats tensor_stats(Index n, const Real* x);

// Sums of squares over a tensor: of its weights before an update, and of their change. Always measured, so
// that a run computes the same bits whether it logs or not.
struct WeightChange {
  double before = 0, change = 0;

  void operator+=(const WeightChange& other) { before += other.before, change += other.change; }
};

// AdamW (Loshchilov & Hutter 2019), the arithmetic of PyTorch's: with the bias-corrected moments m̂ and v̂,
//   w = w (1 - lr*wd) - lr m̂ / (sqrt(v̂) + eps)
template <class Real>
struct AdamW {
  Real gradient_scale;  // from clipping
  Real beta1, beta2;
  // Rounded from double: with beta near 1, 1 - beta in float has no digits left.
  Real one_minus_beta1, one_minus_beta2;
  Real eps;
  Real decay;                 // 1 - lr*wd, or 1 where no weight decay applies
  Real step_size;             // lr / (1 - beta1^t)
  Real inv_sqrt_correction2;  // 1 / sqrt(1 - beta2^t)
};

// v = momentum*v + g; w = w (1 - lr*wd) - lr v.
template <class Real>
struct MomentumStep {
  Real gradient_scale;
  Real momentum;
  Real decay;
  Real lr;
};

}  // namespace normscope
