#include "kernels/column_norm.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"

namespace normscope {
namespace {

constexpr Index cols_per_block = 16;  // a cache line of floats, by one thread

// total[c] = sum over `rows` rows of term(row, c), for the columns [begin, end).
template <class Real, class Term>
void sum_rows(Index rows, Index begin, Index end, Real* total, Term term) {
  double sum[cols_per_block] = {};
  for (Index row = 0; row < rows; ++row) {
    for (Index c = begin; c < end; ++c) sum[c - begin] += term(row, c);
  }
  for (Index c = begin; c < end; ++c) total[c - begin] = static_cast<Real>(sum[c - begin]);
}

template <class Real>
Real inverse_deviation(const ColumnNorm<Real>& norm, Real variance) {
  return norm.eps_outside ? 1 / (std::sqrt(variance) + norm.eps) : 1 / std::sqrt(variance + norm.eps);
}

}  // namespace

template <class Real>
void column_norm_forward(const ColumnNorm<Real>& norm, Index rows, const Real* x, const Real* gain,
                         const Real* bias, Real* y, Real* mean, Real* variance, Real* rstd) {
  const Index cols = norm.cols, n = norm.group_rows;
  parallel_blocks(cols, cols_per_block, [&](Index begin, Index end) {
    for (Index group = 0; group < rows / n; ++group) {
      const Real* xs = x + group * n * cols;
      Real *mu = mean + group * cols + begin, *var = variance + group * cols + begin,
           *r = rstd + group * cols + begin;
      sum_rows(n, begin, end, mu, [&](Index row, Index c) { return xs[row * cols + c]; });
      for (Index c = 0; c < end - begin; ++c) mu[c] /= static_cast<Real>(n);
      sum_rows(n, begin, end, var, [&](Index row, Index c) {
        const Real centred = xs[row * cols + c] - mu[c - begin];
        return centred * centred;
      });
      for (Index c = 0; c < end - begin; ++c) {
        var[c] /= static_cast<Real>(n);
        r[c] = inverse_deviation(norm, var[c]);
      }
      for (Index row = 0; row < n; ++row) {
        for (Index c = begin; c < end; ++c) {
          Real v = (xs[row * cols + c] - mu[c - begin]) * r[c - begin];
          if (gain != nullptr) v *= gain[c];
          if (bias != nullptr) v += bias[c];
          y[(group * n + row) * cols + c] = v;
        }
      }
    }
  });
}

template <class Real>
void column_norm_backward(const ColumnNorm<Real>& norm, Index rows, const Real* x, const Real* mean,
                          const Real* rstd, const Real* gain, const Real* dy, Real* dx, Real beta,
                          Real* dgain, Real* dbias) {
  const Index cols = norm.cols, n = norm.group_rows;
  parallel_blocks(cols, cols_per_block, [&](Index begin, Index end) {
    for (Index group = 0; group < rows / n; ++group) {
      const Index first = group * n * cols;
      const Real *mu = mean + group * cols, *r = rstd + group * cols;
      const auto normed = [&](Index row, Index c) { return (x[first + row * cols + c] - mu[c]) * r[c]; };
      Real sum_x[cols_per_block], sum_dy[cols_per_block], sum_dyx[cols_per_block];
      sum_rows(n, begin, end, sum_x, normed);
      sum_rows(n, begin, end, sum_dy, [&](Index row, Index c) { return dy[first + row * cols + c]; });
      sum_rows(n, begin, end, sum_dyx,
               [&](Index row, Index c) { return dy[first + row * cols + c] * normed(row, c); });
      for (Index c = begin; c < end; ++c) {
        if (dgain != nullptr) dgain[c] += sum_dyx[c - begin];
        if (dbias != nullptr) dbias[c] += sum_dy[c - begin];
      }
      for (Index c = begin; c < end; ++c) {
        const Real g = gain != nullptr ? gain[c] : Real(1);
        // With eps outside the root the term along x̂ is (σ + eps)/σ times as large (kernels/simd/norm.h).
        const Real sigma = 1 / r[c] - norm.eps;
        const Real factor = !norm.eps_outside ? Real(1) : sigma > 0 ? 1 / (sigma * r[c]) : Real(0);
        const Real along = factor * g * sum_dyx[c - begin] / static_cast<Real>(n);
        const Real mean_g = (g * sum_dy[c - begin] - along * sum_x[c - begin]) / static_cast<Real>(n);
        for (Index row = 0; row < n; ++row) {
          Real& out = dx[first + row * cols + c];
          const Real d = r[c] * ((g * dy[first + row * cols + c] - normed(row, c) * along) - mean_g);
          out = (beta == 0 ? Real(0) : beta * out) + d;
        }
      }
    }
  });
}

template <class Real>
void column_affine(const ColumnNorm<Real>& norm, Index rows, const Real* x, const Real* mean,
                   const Real* variance, const Real* gain, const Real* bias, Real* y) {
  const Index cols = norm.cols;
  parallel_blocks(cols, cols_per_block, [&](Index begin, Index end) {
    Real factor[cols_per_block];
    for (Index c = begin; c < end; ++c) {
      factor[c - begin] = inverse_deviation(norm, variance[c]) * (gain != nullptr ? gain[c] : Real(1));
    }
    for (Index row = 0; row < rows; ++row) {
      for (Index c = begin; c < end; ++c) {
        y[row * cols + c] =
            (x[row * cols + c] - mean[c]) * factor[c - begin] + (bias != nullptr ? bias[c] : Real(0));
      }
    }
  });
}

template void column_norm_forward(const ColumnNorm<float>&, Index, const float*, const float*, const float*,
                                  float*, float*, float*, float*);
template void column_norm_forward(const ColumnNorm<double>&, Index, const double*, const double*,
                                  const double*, double*, double*, double*, double*);
template void column_norm_backward(const ColumnNorm<float>&, Index, const float*, const float*, const float*,
                                   const float*, const float*, float*, float, float*, float*);
template void column_norm_backward(const ColumnNorm<double>&, Index, const double*, const double*,
                                   const double*, const double*, const double*, double*, double, double*,
                                   double*);
template void column_affine(const ColumnNorm<float>&, Index, const float*, const float*, const float*,
                            const float*, const float*, float*);
template void column_affine(const ColumnNorm<double>&, Index, const double*, const double*, const double*,
                            const double*, const double*, double*);

}  // namespace normscope
