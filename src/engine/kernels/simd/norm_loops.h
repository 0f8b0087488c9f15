// Layer, RMS and group norm, pointwise norms: rows [begin, end), serially.
#pragma once

#include "kernels/simd.h"
#include "kernels/simd/vector.h"

namespace normscope::NORMSCOPE_NAMESPACE {

// Members are copied to locals: a store might alias the struct, and tests of null would stay in the loop.

// gain * x + bias, of which either may be absent.
template <class Part>
inline Vec scaled(Vec x, const float* gain, const float* bias, Index feature, Part part) {
  if (gain != nullptr && bias != nullptr) return fma(x, part.get(gain + feature), part.get(bias + feature));
  if (gain != nullptr) return x * part.get(gain + feature);
  if (bias != nullptr) return x + part.get(bias + feature);
  return x;
}

// Squares outside the range of a float show in the results: the mean or rstd of a group of features is then
// not finite, or its rstd is 0 or above 2^56. Such a group is normalised again, in double.
constexpr float largest_float = 0x1.fffffep127f, largest_rstd = 0x1p56f;

inline void layer_norm_forward(const LayerNorm<float>& norm, Index begin, Index end, float* y) {
  const Index width = norm.cols / norm.groups;
  const float n = static_cast<float>(width), *gain = norm.gain, *bias = norm.bias;
  for (Index row = begin; row < end; ++row) {
    for (Index group = 0; group < norm.groups; ++group) {
      const Index feature = norm.shared_gain ? 0 : group * width;
      const float* xs = norm.x + row * norm.stride + group * width;
      float* ys = y + row * norm.stride + group * width;
      float mu = 0, rest = 0;
      if (norm.centred) {
        Lanes<Vec> sum;
        for_each_summand(width, [&](Index i, auto part, auto v) { sum[v] += part.get(xs + i); });
        mu = total(sum) / n;
      }
      Lanes<Vec> sum, squares;
      for_each_summand(width, [&](Index i, auto part, auto v) {
        const Vec centred = part.get(xs + i, mu) - mu;
        sum[v] += centred;
        squares[v] = fma(centred, centred, squares[v]);
      });
      // The sum about the mean is rounding error; it corrects both (Chan, Golub & LeVeque 1983).
      if (norm.centred) rest = total(sum) / n;
      mu += rest;
      const float mean_square = total(squares) / n;
      // NaN where both are infinite.
      const float variance = mean_square < rest * rest ? 0 : mean_square - rest * rest;
      const float r = norm.eps_outside ? 1 / (__builtin_sqrtf(variance) + norm.eps)
                                       : 1 / __builtin_sqrtf(variance + norm.eps);
      norm.mean[row * norm.groups + group] = mu;
      norm.rstd[row * norm.groups + group] = r;
      if (!(__builtin_fabsf(mu) <= largest_float && r > 0 && r < largest_rstd)) {
        reference::layer_norm_group(norm, row, group, y);
        continue;
      }
      for_each_vector(width, [&](Index i, auto part) {
        const Vec normed = (part.get(xs + i) - mu) * r;
        part.put(ys + i, scaled(normed, gain, bias, feature + i, part));
      });
    }
  }
}

// The factor of mean(g x̂) in the backward: (σ + eps)/σ with eps outside the root, else 1.
inline float eps_correction(const LayerNorm<float>& norm, float rstd) {
  if (!norm.eps_outside) return 1;
  const float sigma = 1 / rstd - norm.eps;
  return sigma > 0 ? 1 / (sigma * rstd) : 0;
}

// dx = rstd (g - x̂ proj - mean_rest), g = gain*dy, proj = eps_correction mean(g x̂).
//
//   layer norm      mean_rest = mean(g - x̂ proj). On paper that is mean(g), since x̂ has mean 0; in
//                   floats only this form makes the dx of a group sum to 0.
//   RMS norm        mean_rest = 0
//   detached norm   proj = mean_rest = 0
inline void layer_norm_backward(const LayerNorm<float>& norm, const NormGradients<float>& gradients,
                                Index begin, Index end) {
  const Index width = norm.cols / norm.groups;
  const float n = static_cast<float>(width), *gain = norm.gain;
  for (Index row = begin; row < end; ++row) {
    for (Index group = 0; group < norm.groups; ++group) {
      const Index first = row * norm.stride + group * width, feature = norm.shared_gain ? 0 : group * width;
      const float *xs = norm.x + first, *dys = gradients.dy + first;
      const float beta = gradients.beta;
      float *dxs = gradients.dx + first, *dgain = gradients.dgain, *dbias = gradients.dbias;
      const float mu = norm.mean[row * norm.groups + group], r = norm.rstd[row * norm.groups + group];
      Lanes<Vec> sum_x, sum_g, sum_gx;
      for_each_summand(width, [&](Index i, auto part, auto v) {
        const Vec d = part.get(dys + i), normed = (part.get(xs + i, mu) - mu) * r;
        const Vec g = gain != nullptr ? d * part.get(gain + feature + i) : d;
        sum_x[v] += normed;
        sum_g[v] += g;
        sum_gx[v] = fma(g, normed, sum_gx[v]);
        if (dgain != nullptr) add_into(dgain + feature + i, 1, d * normed, part);
        if (dbias != nullptr) part.put(dbias + feature + i, part.get(dbias + feature + i) + d);
      });
      const float proj = norm.detached ? 0 : eps_correction(norm, r) * total(sum_gx) / n;
      const bool through_mean = norm.centred && !norm.detached;
      const float mean_rest = through_mean ? (total(sum_g) - proj * total(sum_x)) / n : 0;
      for_each_vector(width, [&](Index i, auto part) {
        Vec g = part.get(dys + i);
        if (gain != nullptr) g *= part.get(gain + feature + i);
        const Vec normed = (part.get(xs + i) - mu) * r;
        add_into(dxs + i, beta, r * (fma(normed, -proj, g) - mean_rest), part);
      });
    }
  }
}

// Call body with f of the norm.
template <class Body>
inline void dispatch_pointwise(PointwiseFn function, Body body) {
  if (function == PointwiseFn::erf) {
    body([](Vec x) { return erf(x); });
  } else {
    body([](Vec x) { return tanh(x); });
  }
}

inline void pointwise_norm_forward(const PointwiseNorm<float>& norm, Index begin, Index end, float* y) {
  const float *gain = norm.gain, *bias = norm.bias, alpha = norm.alpha, shift = norm.shift;
  dispatch_pointwise(norm.function, [&](auto f) {
    for (Index row = begin; row < end; ++row) {
      for_each_vector(norm.cols, [&](Index c, auto part) {
        const Vec value = f(fma(part.get(norm.x + row * norm.cols + c), alpha, splat(shift))).value;
        part.put(y + row * norm.cols + c, scaled(value, gain, bias, c, part));
      });
    }
  });
}

inline void pointwise_norm_backward(const PointwiseNorm<float>& norm, const NormGradients<float>& gradients,
                                    Index begin, Index end) {
  const float *gain = norm.gain, alpha = norm.alpha, shift = norm.shift, beta = gradients.beta;
  float *dx = gradients.dx, *dgain = gradients.dgain, *dbias = gradients.dbias;
  Lanes<WideVec> sum, sum_x;  // each one number of rows * cols terms
  dispatch_pointwise(norm.function, [&](auto f) {
    for (Index row = begin; row < end; ++row) {
      for_each_summand(norm.cols, [&](Index c, auto part, auto v) {
        const Index at = row * norm.cols + c;
        const Vec x = part.get(norm.x + at), d = part.get(gradients.dy + at);
        const ValueAndDerivative t = f(fma(x, alpha, splat(shift)));
        const Vec inner = (gain != nullptr ? d * part.get(gain + c) : d) * t.derivative;
        sum[v] += __builtin_convertvector(inner, WideVec);
        sum_x[v] += __builtin_convertvector(inner * x, WideVec);
        add_into(dx + at, beta, alpha * inner, part);
        if (dgain != nullptr) add_into(dgain + c, 1, d * t.value, part);
        if (dbias != nullptr) part.put(dbias + c, part.get(dbias + c) + d);
      });
    }
  });
  if (gradients.dalpha != nullptr) *gradients.dalpha += static_cast<float>(total(sum_x));
  if (gradients.dshift != nullptr) *gradients.dshift += static_cast<float>(total(sum));
}

}  // namespace normscope::NORMSCOPE_NAMESPACE
