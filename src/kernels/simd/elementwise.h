// Serial sums, products, statistics, the optimiser's update.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "kernels/simd/vector.h"

namespace normscope::NORMSCOPE_ISA {

template <class Real>
void scale_add(Index n, Real alpha, const Real* x, Real beta, Real* y) {
  each_vector<Real>(
      n, [&](Index i, auto part) { add_into(y + i, beta, Vec<Real>(alpha * part.get(x + i)), part); });
}

template <class Real>
void weighted_sum(Index n, Real alpha, const Real* a, const Real* b, Real* y) {
  each_vector<Real>(
      n, [&](Index i, auto part) { part.put(y + i, Vec<Real>(alpha * part.get(a + i) + part.get(b + i))); });
}

template <class Real>
Real dot(Index n, const Real* a, const Real* b) {
  Vec<Real> sum{};
  each_vector<Real>(n, [&](Index i, auto part) { sum += part.get(a + i) * part.get(b + i); });
  return sum_lanes<Real>(sum);
}

template <class Real>
Moments moments(Index n, const Real* x) {
  Vec<Real> sum{}, squares{}, largest{};
  MaskVec<Real> bad{};
  each_vector<Real>(n, [&](Index i, auto part) {
    const Vec<Real> v = part.get(x + i);
    const Vec<Real> magnitude = v < 0 ? -v : v;
    sum += v;
    squares += v * v;
    largest = magnitude > largest ? magnitude : largest;  // false for NaN
    bad += (v - v != v - v);                              // inf - inf is NaN; a true lane is -1
  });
  Moments result;
  result.sum = sum_lanes<Real>(sum);
  result.sum_squares = sum_lanes<Real>(squares);
  result.abs_max = max_lanes<Real>(largest);
  for (Index i = 0; i < lanes<Real>; ++i) result.nonfinite -= bad[i];
  result.count = n;
  return result;
}

// Plain loops: the compiler vectorises them, square root and all.
template <class Real>
void adamw(Index n, const AdamW<Real>& step, const Real* __restrict g, Real* __restrict w, Real* __restrict m,
           Real* __restrict v) {
  for (Index i = 0; i < n; ++i) {
    const Real grad = g[i] * step.gradient_scale;
    m[i] = step.beta1 * m[i] + (1 - step.beta1) * grad;
    v[i] = step.beta2 * v[i] + (1 - step.beta2) * grad * grad;
    const Real denominator = square_root(v[i]) * step.inv_sqrt_correction2 + step.eps;
    w[i] = w[i] * step.decay - step.step_size * m[i] / denominator;
  }
}

template <class Real>
void sgd(Index n, const Sgd<Real>& step, const Real* __restrict g, Real* __restrict w, Real* __restrict v) {
  for (Index i = 0; i < n; ++i) {
    v[i] = step.momentum * v[i] + g[i] * step.gradient_scale;
    w[i] = w[i] * step.decay - step.lr * v[i];
  }
}

}  // namespace normscope::NORMSCOPE_ISA
