// The sums and factors around a sublayer: alpha*x + branch, constant * x, learned * x.
#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/pointwise.h"
#include "kernels/simd.h"
#include "ops/ops.h"

namespace normscope {

// y = alpha x + b;  dx = alpha dy,  db = dy.
template <class Real>
Var<Real> residual_sum(Tape<Real>& tape, Real alpha, Var<Real> x, Var<Real> branch) {
  const typename Tape<Real>::Op op(tape, "residual", x.rows, x.cols);
  require(x.rows == branch.rows && x.cols == branch.cols, "residual_sum", "x is (", x.rows, ", ", x.cols,
          "), the branch (", branch.rows, ", ", branch.cols, ")");
  Var<Real> y = tape.create(x.rows, x.cols);
  axpy(x.size(), alpha, x.value, branch.value, y.value);

  tape.record(y, [=](Tape<Real>& t) {
    t.share_gradient(y, branch);
    if (alpha == 1) return t.share_gradient(y, x);
    const Accumulator<Real> dx = t.accumulate(x);
    axpby(x.size(), alpha, t.gradient(y), dx.beta, dx.data);
  });
  return y;
}

// y = f x;  dx = f dy.
template <class Real>
Var<Real> scale(Tape<Real>& tape, Real factor, Var<Real> x) {
  if (factor == 1) return x;
  const typename Tape<Real>::Op op(tape, "scale", x.rows, x.cols);
  Var<Real> y = tape.create(x.rows, x.cols);
  axpby(x.size(), factor, x.value, Real(0), y.value);

  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> dx = t.accumulate(x);
    axpby(x.size(), factor, t.gradient(y), dx.beta, dx.data);
  });
  return y;
}

// y = f x;  dx = f dy,  df = sum of dy x, over all elements, or over the rows of each feature.
template <class Real>
Var<Real> scale_by(Tape<Real>& tape, Var<Real> factor, Var<Real> x) {
  if (!factor) return x;
  const typename Tape<Real>::Op op(tape, "learned scale", x.rows, x.cols);
  require(factor.size() == 1 || factor.size() == x.cols, "scale_by", "the factor must be one number, or ",
          x.cols, "; got ", factor.size());
  const bool by_feature = factor.size() > 1;
  // out = f in, row by row.
  const auto scale_rows = [=](const Real* in, Real* out) {
    parallel_for(x.rows, [&](Index r) {
      kernels<Real>().multiply(x.cols, in + r * x.cols, factor.value, out + r * x.cols);
    });
  };
  Var<Real> y = tape.create(x.rows, x.cols);
  if (by_feature) {
    scale_rows(x.value, y.value);
  } else {
    axpby(x.size(), *factor.value, x.value, Real(0), y.value);
  }

  tape.record(y, [=](Tape<Real>& t) {
    const Real* dy = t.gradient(y);
    if (!by_feature) {
      if (t.wants_gradient(factor)) *t.add_to(factor) += static_cast<Real>(dot(x.size(), dy, x.value));
      const Accumulator<Real> dx = t.accumulate(x);
      return axpby(x.size(), *factor.value, dy, dx.beta, dx.data);
    }
    struct Product;
    Real* product = thread_scratch<Real, Product>(x.size());
    if (t.wants_gradient(factor)) {
      multiply(x.size(), dy, x.value, product);
      sum_rows(x.rows, x.cols, product, t.add_to(factor));
    }
    const Accumulator<Real> dx = t.accumulate(x);
    scale_rows(dy, product);
    axpby(x.size(), Real(1), product, dx.beta, dx.data);
  });
  return y;
}

template Var<float> residual_sum(Tape<float>&, float, Var<float>, Var<float>);
template Var<double> residual_sum(Tape<double>&, double, Var<double>, Var<double>);
template Var<float> scale(Tape<float>&, float, Var<float>);
template Var<double> scale(Tape<double>&, double, Var<double>);
template Var<float> scale_by(Tape<float>&, Var<float>, Var<float>);
template Var<double> scale_by(Tape<double>&, Var<double>, Var<double>);

}  // namespace normscope
