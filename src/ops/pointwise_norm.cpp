// DyT, Derf; formulas in kernels/rows.h. Saved: nothing beyond x.
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> pointwise_norm(Tape<Real>& tape, Squash squash, Var<Real> x, Var<Real> alpha, Var<Real> shift,
                         Var<Real> gain, Var<Real> bias) {
  const typename Tape<Real>::Op op(tape, "norm", x.rows, x.cols);
  require(alpha.size() == 1 && (!shift || shift.size() == 1), "pointwise_norm",
          "alpha and shift must be one number each; got ", alpha.size(), " and ", shift.size());
  const PointwiseNorm<Real> norm{x.rows,     x.cols,     *alpha.value, x.value,
                                 gain.value, bias.value, squash,       shift ? *shift.value : Real(0)};
  Var<Real> y = tape.create(x.rows, x.cols);
  pointwise_norm_forward(norm, y.value);

  tape.record(y, [=](Tape<Real>& t) {
    const auto [dx, beta] = t.accumulate(x);
    pointwise_norm_backward(norm, {t.gradient(y), dx, beta, add_if_wanted(t, gain), add_if_wanted(t, bias),
                                   add_if_wanted(t, alpha), add_if_wanted(t, shift)});
  });
  return y;
}

template Var<float> pointwise_norm(Tape<float>&, Squash, Var<float>, Var<float>, Var<float>, Var<float>,
                                   Var<float>);
template Var<double> pointwise_norm(Tape<double>&, Squash, Var<double>, Var<double>, Var<double>, Var<double>,
                                    Var<double>);

}  // namespace normscope
