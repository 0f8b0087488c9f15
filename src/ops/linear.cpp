// y = x Wᵀ + b;  dx = dy W,  dW = dyᵀ x,  db = column sums of dy. Saved: nothing beyond x and W.
// And y = f(x Wᵀ + b): the same with dy f'(x Wᵀ + b) for dy. Saved: that slope.
// x, y and their gradients may be rounded to bf16 (kernels/rounded.h); W, dW and db are as they are.
#include "core/scratch.h"
#include "kernels/pointwise.h"
#include "ops/ops.h"

namespace normscope {
namespace {

template <class Real>
OpCost linear_cost(const char* name, Var<Real> x, Var<Real> weight, Var<Real> bias) {
  require(weight.cols == x.cols, name, "weight has ", weight.cols, " inputs, x has ", x.cols, " features");
  require(!bias || bias.size() == weight.rows, name, "bias has ", bias.size(), " numbers for ", weight.rows);
  const double product = 2 * static_cast<double>(x.rows) * static_cast<double>(weight.size());
  return {.name = name,
          .in = weight.cols,
          .out = weight.rows,
          .flops_forward = product,
          .flops_backward = 2 * product};
}

// y = x Wᵀ and what follows.
template <class Real>
void linear_forward(GemmProvider provider, Var<Real> x, Var<Real> weight, Var<Real> y,
                    const Epilogue<Real>& epilogue) {
  const Index in = x.cols, out = weight.rows;
  Gemm<Real> g{Transpose::no, Transpose::yes, x.rows, out,     in,         Real(1),    x.stored(),
               x.stride(),    weight.value,   in,     Real(0), y.stored(), y.stride(), epilogue};
  g.rounded = {.a = x.rounded != nullptr, .c = y.rounded != nullptr};
  gemm(provider, g);
}

// dy (rows, cols), which the products for dx and dW read, rounded once.
template <class Real>
const Real* rounded_for_both(Index rows, Index cols, const Real* dy) {
  struct Rounded;
  Real* out = thread_scratch<Real, Rounded>(rows * rounded_cols(cols));
  round_rows(rows, cols, dy, out);
  return out;
}

// dy: (rows of x, rows of weight), rounded or not.
template <class Real>
void linear_backward(Tape<Real>& t, GemmProvider provider, const Real* dy, bool rounded, Var<Real> x,
                     Var<Real> weight, Var<Real> bias) {
  const Index rows = x.rows, in = x.cols, out = weight.rows;
  if (bias && t.wants_gradient(bias)) {
    sum_rows(rows, out, rounded ? widened(rows, out, dy) : dy, t.add_to(bias));
  }
  if (rounds<Real>(provider) && !rounded) {
    dy = rounded_for_both(rows, out, dy);
    rounded = true;
  }
  const Index dy_stride = rounded ? rounded_cols(out) : out;
  if (t.wants_gradient(x)) {
    const Accumulator<Real> dx = t.accumulate(x);
    const Index dx_stride = x.rounded_gradient ? rounded_cols(in) : in;
    Gemm<Real> g{Transpose::no, Transpose::no, rows, in,      out,     Real(1),  dy,
                 dy_stride,     weight.value,  in,   dx.beta, dx.data, dx_stride};
    g.rounded = {.a = rounded, .c = x.rounded_gradient};
    gemm(provider, g);
  }
  if (t.wants_gradient(weight)) {
    const Accumulator<Real> dw = t.accumulate(weight);
    Gemm<Real> g{Transpose::yes, Transpose::no, out,        in,      rows,    Real(1), dy,
                 dy_stride,      x.stored(),    x.stride(), dw.beta, dw.data, in};
    g.rounded = {.a = rounded, .b = x.rounded != nullptr};
    gemm(provider, g);
  }
}

}  // namespace

template <class Real>
Var<Real> linear(Tape<Real>& tape, GemmProvider gemm_provider, Var<Real> x, Var<Real> weight, Var<Real> bias,
                 bool rounded) {
  const typename Tape<Real>::Op op(tape, linear_cost("linear", x, weight, bias));
  Var<Real> y = tape.create(x.rows, weight.rows, rounded, rounded);
  linear_forward(gemm_provider, x, weight, y, {.bias = bias.value});

  tape.record(
      y, [=](Tape<Real>& t) { linear_backward(t, gemm_provider, t.gradient(y), rounded, x, weight, bias); });
  return y;
}

template <class Real>
Var<Real> activated_linear(Tape<Real>& tape, GemmProvider gemm_provider, ActivationKind activation,
                           Var<Real> x, Var<Real> weight, Var<Real> bias) {
  const typename Tape<Real>::Op op(tape, linear_cost("linear, activation", x, weight, bias));
  const bool rounded = rounds<Real>(gemm_provider);
  Var<Real> y = tape.create(x.rows, weight.rows, rounded, rounded);
  const Index stored = y.rows * y.stride();
  Real* slope = tape.template save<Real>(stored);
  linear_forward(gemm_provider, x, weight, y, {.bias = bias.value, .slope = slope, .activation = activation});

  tape.record(y, [=](Tape<Real>& t) {
    // In place of the slope, which nobody reads again.
    rounded ? multiply_rounded(stored, t.gradient(y), slope, slope)
            : multiply(stored, t.gradient(y), slope, slope);
    linear_backward(t, gemm_provider, slope, rounded, x, weight, bias);
  });
  return y;
}

template Var<float> linear(Tape<float>&, GemmProvider, Var<float>, Var<float>, Var<float>, bool);
template Var<double> linear(Tape<double>&, GemmProvider, Var<double>, Var<double>, Var<double>, bool);
template Var<float> activated_linear(Tape<float>&, GemmProvider, ActivationKind, Var<float>, Var<float>,
                                     Var<float>);
template Var<double> activated_linear(Tape<double>&, GemmProvider, ActivationKind, Var<double>, Var<double>,
                                      Var<double>);

}  // namespace normscope
