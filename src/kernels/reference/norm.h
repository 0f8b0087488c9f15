// The norms of rows, written out: for tests and comparison, never for speed.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/norm.h"

namespace normscope::reference {

// Of one group of n features: y = gain * (x - mean) * r + bias.
struct GroupStatistics {
  double mean;
  double r;        // 1/sqrt(var + eps), or 1/(sqrt(var) + eps)
  double r_slope;  // dr/dvar
};

template <class Real>
GroupStatistics group_statistics(const RowNorm<Real>& norm, Index n, const Real* x) {
  double mean = 0, variance = 0;
  for (Index i = 0; norm.centred && i < n; ++i) mean += x[i];
  mean /= static_cast<double>(n);
  for (Index i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  variance /= static_cast<double>(n);
  const double sigma = std::sqrt(variance), eps = norm.eps;
  if (!norm.eps_outside) {
    const double r = 1 / std::sqrt(variance + eps);
    return {mean, r, -r * r * r / 2};
  }
  const double r = 1 / (sigma + eps);
  return {mean, r, sigma > 0 ? -r * r / (2 * sigma) : 0};  // a constant group: dvar/dx is 0 anyway
}

template <class Real>
void norm_forward(const RowNorm<Real>& norm, Index rows, const Real* x, const Real* gain, const Real* bias,
                  Real* y, Real* mean, Real* rstd) {
  const Index n = norm.cols / norm.groups;
  for (Index group = 0; group < rows * norm.groups; ++group) {
    const GroupStatistics s = group_statistics(norm, n, x + group * n);
    mean[group] = static_cast<Real>(s.mean);
    rstd[group] = static_cast<Real>(s.r);
    for (Index i = 0; i < n; ++i) {
      const Index at = group * n + i, feature = at % norm.cols;
      const double scaled = (x[at] - s.mean) * s.r * (gain != nullptr ? double{gain[feature]} : 1.0);
      y[at] = static_cast<Real>(scaled + (bias != nullptr ? double{bias[feature]} : 0.0));
    }
  }
}

// By the whole Jacobian of a group, entry by entry:
//   d((x_j - mean) r)/dx_i = (delta_ij - centred/n) r + (x_j - mean) dr/dvar 2 (x_i - mean)/n
template <class Real>
void norm_backward(const RowNorm<Real>& norm, Index rows, const Real* x, const Real* gain, const Real* dy,
                   Real* dx, Real beta, Real* dgain, Real* dbias) {
  const Index n = norm.cols / norm.groups;
  const double share = 1 / static_cast<double>(n);
  std::vector<double> gain_sum(static_cast<std::size_t>(norm.cols)), bias_sum(gain_sum);
  for (Index group = 0; group < rows * norm.groups; ++group) {
    const Index first = group * n;
    const GroupStatistics s = group_statistics(norm, n, x + first);
    for (Index i = 0; i < n; ++i) {
      double sum = 0;
      for (Index j = 0; j < n; ++j) {
        const Index feature = (first + j) % norm.cols;
        const double g = dy[first + j] * (gain != nullptr ? double{gain[feature]} : 1.0);
        const double direct = ((i == j) - (norm.centred ? share : 0.0)) * s.r;
        const double through_variance =
            (x[first + j] - s.mean) * s.r_slope * 2 * (x[first + i] - s.mean) * share;
        sum += g * (direct + through_variance);
      }
      Real& out = dx[first + i];
      out = static_cast<Real>((beta == 0 ? 0.0 : double{beta} * out) + sum);
      const std::size_t feature = static_cast<std::size_t>((first + i) % norm.cols);
      gain_sum[feature] += dy[first + i] * (x[first + i] - s.mean) * s.r;
      bias_sum[feature] += dy[first + i];
    }
  }
  for (std::size_t i = 0; i < gain_sum.size(); ++i) {
    if (dgain != nullptr) dgain[i] = static_cast<Real>(dgain[i] + gain_sum[i]);
    if (dbias != nullptr) dbias[i] = static_cast<Real>(dbias[i] + bias_sum[i]);
  }
}

}  // namespace normscope::reference
