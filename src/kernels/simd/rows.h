// Layer, RMS and group norm, pointwise norms: rows [begin, end), serially.
#pragma once

#include "kernels/rows.h"
#include "kernels/simd/vector.h"

namespace normscope::NORMSCOPE_ISA {

// Members are copied to locals: a store might alias the struct, and tests of null would stay in the loop.

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
        Vec sum{};
        for_each_vector(width, [&](Index i, auto part) { sum += part.get(xs + i); });
        mu = sum_lanes(sum) / n;
      }
      Vec sum{}, squares{};
      for_each_vector(width, [&](Index i, auto part) {
        const Vec centred = part.get(xs + i, mu) - mu;
        sum += centred;
        squares += centred * centred;
      });
      // The sum about the mean is rounding error; it corrects both (Chan, Golub & LeVeque 1983).
      if (norm.centred) rest = sum_lanes(sum) / n;
      mu += rest;
      const float mean_square = sum_lanes(squares) / n;
      // NaN where both are infinite; the driver then norms the group again (kernels/rows.cpp).
      const float variance = mean_square < rest * rest ? 0 : mean_square - rest * rest;
      const float r = norm.eps_outside ? 1 / (__builtin_sqrtf(variance) + norm.eps)
                                       : 1 / __builtin_sqrtf(variance + norm.eps);
      norm.mean[row * norm.groups + group] = mu;
      norm.rstd[row * norm.groups + group] = r;
      for_each_vector(width, [&](Index i, auto part) {
        Vec v = (part.get(xs + i) - mu) * r;
        if (gain != nullptr) v *= part.get(gain + feature + i);
        if (bias != nullptr) v += part.get(bias + feature + i);
        part.put(ys + i, v);
      });
    }
  }
}

// The factor of the backward's term along x̂: (σ + eps)/σ with eps outside the root, else 1.
inline float inv_sigma(const LayerNorm<float>& norm, float rstd) {
  if (!norm.eps_outside) return 1;
  const float sigma = 1 / rstd - norm.eps;
  return sigma > 0 ? 1 / (sigma * rstd) : 0;
}

// dx = rstd (g - mean(g) - x̂ proj), proj = inv_sigma mean(g x̂), g = gain*dy; without centring the term
// mean(g) is absent. The mean of x̂ is 0 but for the rounding of the mean of x; it is taken out, so that the
// sum of dx is 0 where dx is large.
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
      Vec sum_x{}, sum_g{}, sum_gx{};
      for_each_vector(width, [&](Index i, auto part) {
        const Vec d = part.get(dys + i), normed = (part.get(xs + i, mu) - mu) * r;
        const Vec g = gain != nullptr ? d * part.get(gain + feature + i) : d;
        sum_x += normed;
        sum_g += g;
        sum_gx += g * normed;
        if (dgain != nullptr) part.put(dgain + feature + i, part.get(dgain + feature + i) + d * normed);
        if (dbias != nullptr) part.put(dbias + feature + i, part.get(dbias + feature + i) + d);
      });
      const float proj = norm.detached ? 0 : inv_sigma(norm, r) * sum_lanes(sum_gx) / n;
      const bool through_mean = norm.centred && !norm.detached;
      const float mean_g = through_mean ? (sum_lanes(sum_g) - proj * sum_lanes(sum_x)) / n : 0;
      for_each_vector(width, [&](Index i, auto part) {
        Vec g = part.get(dys + i);
        if (gain != nullptr) g *= part.get(gain + feature + i);
        const Vec normed = (part.get(xs + i) - mu) * r;
        add_into(dxs + i, beta, r * ((g - normed * proj) - mean_g), part);
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
        Vec v = f(alpha * part.get(norm.x + row * norm.cols + c) + shift).value;
        if (gain != nullptr) v *= part.get(gain + c);
        if (bias != nullptr) v += part.get(bias + c);
        part.put(y + row * norm.cols + c, v);
      });
    }
  });
}

inline void pointwise_norm_backward(const PointwiseNorm<float>& norm, const NormGradients<float>& gradients,
                                    Index begin, Index end) {
  const float *gain = norm.gain, alpha = norm.alpha, shift = norm.shift, beta = gradients.beta;
  float *dx = gradients.dx, *dgain = gradients.dgain, *dbias = gradients.dbias;
  WideVec sum{}, sum_x{};  // each one number of rows * cols terms
  dispatch_pointwise(norm.function, [&](auto f) {
    for (Index row = begin; row < end; ++row) {
      for_each_vector(norm.cols, [&](Index c, auto part) {
        const Index at = row * norm.cols + c;
        const Vec v = part.get(norm.x + at), d = part.get(gradients.dy + at);
        const ValueAndDerivative t = f(alpha * v + shift);
        const Vec inner = (gain != nullptr ? d * part.get(gain + c) : d) * t.derivative;
        sum += __builtin_convertvector(inner, WideVec);
        sum_x += __builtin_convertvector(inner * v, WideVec);
        add_into(dx + at, beta, alpha * inner, part);
        if (dgain != nullptr) part.put(dgain + c, part.get(dgain + c) + d * t.value);
        if (dbias != nullptr) part.put(dbias + c, part.get(dbias + c) + d);
      });
    }
  });
  if (gradients.dalpha != nullptr) *gradients.dalpha += static_cast<float>(sum_wide(sum_x));
  if (gradients.dshift != nullptr) *gradients.dshift += static_cast<float>(sum_wide(sum));
}

}  // namespace normscope::NORMSCOPE_ISA
