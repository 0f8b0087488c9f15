// Statistics of an array and the optimisers' updates, written out in double.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/optimizer.h"

namespace normscope::reference {

template <class Real>
Moments moments(Index n, const Real* x) {
  Moments m;
  for (Index i = 0; i < n; ++i) {
    const double value = x[i];
    m.sum += value;
    m.sum_squares += value * value;
    if (!std::isnan(value)) m.abs_max = std::max(m.abs_max, std::abs(value));
    m.nonfinite += !std::isfinite(value);
    ++m.count;
  }
  return m;
}

template <class Real>
void adamw(Index n, const AdamW<Real>& step, const Real* g, Real* w, Real* m, Real* v) {
  for (Index i = 0; i < n; ++i) {
    const double gradient = double{g[i]} * step.gradient_scale;
    const double first = step.beta1 * double{m[i]} + double{step.one_minus_beta1} * gradient;
    const double second = step.beta2 * double{v[i]} + double{step.one_minus_beta2} * gradient * gradient;
    const double denominator = std::sqrt(second) * step.inv_sqrt_correction2 + step.eps;
    m[i] = static_cast<Real>(first);
    v[i] = static_cast<Real>(second);
    w[i] = static_cast<Real>(double{w[i]} * step.decay - step.step_size * first / denominator);
  }
}

template <class Real>
void sgd(Index n, const Sgd<Real>& step, const Real* g, Real* w, Real* v) {
  for (Index i = 0; i < n; ++i) {
    const double velocity = double{step.momentum} * v[i] + double{g[i]} * step.gradient_scale;
    v[i] = static_cast<Real>(velocity);
    w[i] = static_cast<Real>(double{w[i]} * step.decay - step.lr * velocity);
  }
}

}  // namespace normscope::reference
