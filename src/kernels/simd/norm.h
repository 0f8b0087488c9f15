// Norms of rows (layer norm, RMS norm, group norm): statistics, forward, backward.
#pragma once

#include "kernels/norm.h"
#include "kernels/simd/vector.h"

namespace normscope::NORMSCOPE_ISA {

// What ε outside the root multiplies the backward's term along x̂ by: (σ + ε)/σ, 1 where ε is inside.
template <class Real>
inline Real projection_factor(const RowNorm<Real>& norm, Real rstd) {
  if (!norm.eps_outside) return 1;
  const Real sigma = 1 / rstd - norm.eps;
  return sigma > 0 ? 1 / (sigma * rstd) : Real(0);
}

template <class Real>
void norm_forward(const RowNorm<Real>& norm, Index begin, Index end, const Real* x, const Real* gain,
                  const Real* bias, Real* y, Real* mean, Real* rstd) {
  const Index width = norm.cols / norm.groups;
  for (Index row = begin; row < end; ++row) {
    for (Index group = 0; group < norm.groups; ++group) {
      const Real* xs = x + row * norm.cols + group * width;
      Real* ys = y + row * norm.cols + group * width;
      Real mu = 0, off = 0;
      if (norm.centred) {
        Vec<Real> sum{};
        for_each_vector<Real>(width, [&](Index i, auto part) { sum += part.get(xs + i); });
        mu = sum_lanes<Real>(sum) / static_cast<Real>(width);
      }
      Vec<Real> sum{}, squares{};
      for_each_vector<Real>(width, [&](Index i, auto part) {
        const Vec<Real> centred = part.get(xs + i, mu) - mu;
        sum += centred;
        squares += centred * centred;
      });
      // What rounding left of the sum about the mean corrects both (Chan, Golub & LeVeque 1983).
      if (norm.centred) off = sum_lanes<Real>(sum) / static_cast<Real>(width);
      mu += off;
      const Real mean_square = sum_lanes<Real>(squares) / static_cast<Real>(width);
      const Real variance = mean_square > off * off ? mean_square - off * off : Real(0);
      const Real r =
          norm.eps_outside ? 1 / (square_root(variance) + norm.eps) : 1 / square_root(variance + norm.eps);
      mean[row * norm.groups + group] = mu;
      rstd[row * norm.groups + group] = r;
      const Index feature = group * width;
      for_each_vector<Real>(width, [&](Index i, auto part) {
        Vec<Real> v = (part.get(xs + i) - mu) * r;
        if (gain != nullptr) v *= part.get(gain + feature + i);
        if (bias != nullptr) v += part.get(bias + feature + i);
        part.put(ys + i, v);
      });
    }
  }
}

// dx = r (g - mean(g) - x̂ factor mean(g x̂)), g = gain*dy; without centring the mean(g) term is absent. The
// mean of x̂ is 0 but for the rounding of the mean of x; it is taken out, so that the sum of dx is 0 where dx
// is large. dgain += dy*x̂ and dbias += dy over the rows of [begin, end).
template <class Real>
void norm_backward(const RowNorm<Real>& norm, Index begin, Index end, const Real* x, const Real* mean,
                   const Real* rstd, const Real* gain, const Real* dy, Real* dx, Real beta, Real* dgain,
                   Real* dbias) {
  const Index width = norm.cols / norm.groups;
  for (Index row = begin; row < end; ++row) {
    for (Index group = 0; group < norm.groups; ++group) {
      const Index feature = group * width;
      const Real* xs = x + row * norm.cols + feature;
      const Real* dys = dy + row * norm.cols + feature;
      Real* dxs = dx + row * norm.cols + feature;
      const Real mu = mean[row * norm.groups + group];
      const Real r = rstd[row * norm.groups + group];
      Vec<Real> sum_x{}, sum_g{}, sum_gx{};
      for_each_vector<Real>(width, [&](Index i, auto part) {
        const Vec<Real> d = part.get(dys + i);
        const Vec<Real> normed = (part.get(xs + i, mu) - mu) * r;
        const Vec<Real> g = gain != nullptr ? Vec<Real>(d * part.get(gain + feature + i)) : d;
        sum_x += normed;
        sum_g += g;
        sum_gx += g * normed;
        if (dgain != nullptr)
          part.put(dgain + feature + i, Vec<Real>(part.get(dgain + feature + i) + d * normed));
        if (dbias != nullptr) part.put(dbias + feature + i, Vec<Real>(part.get(dbias + feature + i) + d));
      });
      const Real n = static_cast<Real>(width);
      const Real along = projection_factor(norm, r) * sum_lanes<Real>(sum_gx) / n;
      const Real mean_g =
          norm.centred ? (sum_lanes<Real>(sum_g) - along * sum_lanes<Real>(sum_x)) / n : Real(0);
      for_each_vector<Real>(width, [&](Index i, auto part) {
        Vec<Real> g = part.get(dys + i);
        if (gain != nullptr) g *= part.get(gain + feature + i);
        const Vec<Real> normed = (part.get(xs + i) - mu) * r;
        add_into(dxs + i, beta, Vec<Real>(r * ((g - normed * along) - mean_g)), part);
      });
    }
  }
}

}  // namespace normscope::NORMSCOPE_ISA
