// y = x Wᵀ + b;  dx = dy W,  dW = dyᵀ x,  db = column sums of dy. Saved: nothing beyond x and W.
#include "kernels/elementwise.h"
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> linear(Tape<Real>& tape, GemmProvider gemm_provider, Var<Real> x, Var<Real> weight,
                 Var<Real> bias) {
  require(weight.cols == x.cols, "linear", "weight has ", weight.cols, " inputs, x has ", x.cols,
          " features");
  require(!bias || bias.size() == weight.rows, "linear", "bias has ", bias.size(), " numbers for ",
          weight.rows);
  const Index rows = x.rows, in = x.cols, out = weight.rows;
  const double product = 2 * static_cast<double>(rows) * static_cast<double>(weight.size());
  const typename Tape<Real>::Op op(
      tape,
      {.name = "linear", .in = in, .out = out, .flops_forward = product, .flops_backward = 2 * product});

  Var<Real> y = tape.create(rows, out);
  gemm<Real>(gemm_provider, {Transpose::no, Transpose::yes, rows, out, in, Real(1), x.value, in, weight.value,
                             in, Real(0), y.value, out});
  if (bias) add_bias(rows, out, bias.value, y.value);

  tape.record(y, [=](Tape<Real>& t) {
    const Real* dy = t.gradient(y);
    if (t.wants_gradient(x)) {
      const Accumulator<Real> dx = t.accumulate(x);
      gemm<Real>(gemm_provider, {Transpose::no, Transpose::no, rows, in, out, Real(1), dy, out, weight.value,
                                 in, dx.beta, dx.data, in});
    }
    if (t.wants_gradient(weight)) {
      const Accumulator<Real> dw = t.accumulate(weight);
      gemm<Real>(gemm_provider, {Transpose::yes, Transpose::no, out, in, rows, Real(1), dy, out, x.value, in,
                                 dw.beta, dw.data, in});
    }
    if (bias && t.wants_gradient(bias)) add_rows(rows, out, dy, t.add_to(bias));
  });
  return y;
}

template Var<float> linear(Tape<float>&, GemmProvider, Var<float>, Var<float>, Var<float>);
template Var<double> linear(Tape<double>&, GemmProvider, Var<double>, Var<double>, Var<double>);

}  // namespace normscope
