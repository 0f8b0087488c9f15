#include "train/muon.h"

#include <algorithm>
#include <cmath>

#include "core/scratch.h"
#include "kernels/gemm/gemm.h"
#include "kernels/pointwise.h"
#include "kernels/update_rules.h"

namespace normscope {
namespace {

// Replace x, whose singular value decomposition is USV', by nearly UV': five steps of the Newton-Schulz
// iteration x = (aI + bG + cG^2) x with G = xx', as in torch.optim.Muon but in the precision of Real.
// Singular values from 0.003 to 1 end between 0.7 and 1.2. A tall x is multiplied by the smaller G = x'x on
// its right.
template <class Real>
void orthogonalise(GemmProvider provider, const Matrix<Real>& x) {
  constexpr auto a = Real(3.4445), b = Real(-4.775), c = Real(2.0315);
  constexpr auto least_size = Real(1e-7);
  constexpr int iterations = 5;
  static_assert(iterations % 2 == 1, "the last one writes x itself");
  const bool is_tall = x.rows > x.cols;
  const Index n = std::min(x.rows, x.cols);
  struct From;
  struct Gram;
  struct Polynomial;
  Matrix<Real> from(thread_scratch<Real, From>(x.size()), x.rows, x.cols), to = x;
  const Matrix<Real> gram(thread_scratch<Real, Gram>(n * n), n, n);
  const Matrix<Real> polynomial(thread_scratch<Real, Polynomial>(n * n), n, n);

  const Real size = std::max(least_size, static_cast<Real>(std::sqrt(sum_squares(x.size(), x.data))));
  axpby(x.size(), 1 / size, x.data, Real(0), from.data);
  for (int i = 0; i < iterations; ++i) {
    gemm<Real>(provider, {.a = is_tall ? from.t() : from, .b = is_tall ? from : from.t(), .c = gram});
    axpby(n * n, b / c, gram.data, Real(0), polynomial.data);
    gemm<Real>(provider, {.a = gram, .b = gram, .c = polynomial, .beta = 1});
    axpby(n * n, c, polynomial.data, Real(0), polynomial.data);
    for (Index j = 0; j < n; ++j) polynomial.data[j * n + j] += a;
    gemm<Real>(provider, {.a = is_tall ? from : polynomial, .b = is_tall ? polynomial : from, .c = to});
    std::swap(from, to);
  }
}

}  // namespace

template <class Real>
void muon_direction(const TrainConfig& config, double gradient_scale, const Real* gradient, Real* momentum,
                    const Matrix<Real>& direction) {
  const Index n = direction.size();
  const auto mu = static_cast<Real>(config.momentum), scale = static_cast<Real>(gradient_scale);
  axpby(n, scale, gradient, mu, momentum);
  for (Index i = 0; i < n; ++i) momentum[i] = without_subnormal(momentum[i]);
  axpby(n, scale, gradient, Real(0), direction.data);
  axpby(n, mu, static_cast<const Real*>(momentum), Real(1), direction.data);
  orthogonalise<Real>(config.gemm, direction);
}

double muon_rate(double lr, Index rows, Index cols) {
  constexpr double scale = 0.2;
  return lr * scale * std::sqrt(static_cast<double>(std::max(rows, cols)));
}

template void muon_direction(const TrainConfig&, double, const float*, float*, const Matrix<float>&);
template void muon_direction(const TrainConfig&, double, const double*, double*, const Matrix<double>&);

}  // namespace normscope
