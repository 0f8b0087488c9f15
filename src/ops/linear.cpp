// y = x Wᵀ + b;  dx = dy W,  dW = dyᵀ x,  db = column sums of dy. Saved: nothing beyond x and W.
// And y = f(x Wᵀ + b): the same with dy f'(x Wᵀ + b) for dy. Saved: that slope.
#include "kernels/elementwise.h"
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
void linear_forward(GemmProvider provider, Var<Real> x, Var<Real> weight, Real* y,
                    const Epilogue<Real>& epilogue) {
  const Index in = x.cols, out = weight.rows;
  gemm<Real>(provider, {Transpose::no, Transpose::yes, x.rows, out, in, Real(1), x.value, in, weight.value,
                        in, Real(0), y, out, epilogue});
}

template <class Real>
void linear_backward(Tape<Real>& t, GemmProvider provider, const Real* dy, Var<Real> x, Var<Real> weight,
                     Var<Real> bias) {
  const Index rows = x.rows, in = x.cols, out = weight.rows;
  if (t.wants_gradient(x)) {
    const Accumulator<Real> dx = t.accumulate(x);
    gemm<Real>(provider, {Transpose::no, Transpose::no, rows, in, out, Real(1), dy, out, weight.value, in,
                          dx.beta, dx.data, in});
  }
  if (t.wants_gradient(weight)) {
    const Accumulator<Real> dw = t.accumulate(weight);
    gemm<Real>(provider, {Transpose::yes, Transpose::no, out, in, rows, Real(1), dy, out, x.value, in,
                          dw.beta, dw.data, in});
  }
  if (bias && t.wants_gradient(bias)) add_rows(rows, out, dy, t.add_to(bias));
}

}  // namespace

template <class Real>
Var<Real> linear(Tape<Real>& tape, GemmProvider gemm_provider, Var<Real> x, Var<Real> weight,
                 Var<Real> bias) {
  const typename Tape<Real>::Op op(tape, linear_cost("linear", x, weight, bias));
  Var<Real> y = tape.create(x.rows, weight.rows);
  linear_forward(gemm_provider, x, weight, y.value, {.bias = bias.value});

  tape.record(y, [=](Tape<Real>& t) { linear_backward(t, gemm_provider, t.gradient(y), x, weight, bias); });
  return y;
}

template <class Real>
Var<Real> activated_linear(Tape<Real>& tape, GemmProvider gemm_provider, ActivationKind activation,
                           Var<Real> x, Var<Real> weight, Var<Real> bias) {
  const typename Tape<Real>::Op op(tape, linear_cost("linear, activation", x, weight, bias));
  Var<Real> y = tape.create(x.rows, weight.rows);
  Real* slope = tape.template save<Real>(y.size());
  linear_forward(gemm_provider, x, weight, slope,
                 {.bias = bias.value, .activated = y.value, .activation = activation});

  tape.record(y, [=](Tape<Real>& t) {
    multiply(y.size(), t.gradient(y), slope, slope);  // nobody reads the slope again
    linear_backward(t, gemm_provider, slope, x, weight, bias);
  });
  return y;
}

template Var<float> linear(Tape<float>&, GemmProvider, Var<float>, Var<float>, Var<float>);
template Var<double> linear(Tape<double>&, GemmProvider, Var<double>, Var<double>, Var<double>);
template Var<float> activated_linear(Tape<float>&, GemmProvider, ActivationKind, Var<float>, Var<float>,
                                     Var<float>);
template Var<double> activated_linear(Tape<double>&, GemmProvider, ActivationKind, Var<double>, Var<double>,
                                      Var<double>);

}  // namespace normscope
