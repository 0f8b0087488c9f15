// The activations and their derivatives on vectors.
#pragma once

#include "kernels/activation.h"
#include "kernels/simd/math.h"

namespace normscope::NORMSCOPE_ISA {

template <class Real>
inline ValueAndSlope<Real> relu(Vec<Real> x) {
  // Written so that NaN passes: NaN <= 0 is false.
  return {select<Real>(x <= 0, Vec<Real>{}, x), select<Real>(x <= 0, Vec<Real>{}, splat(Real(1)))};
}

template <class Real>
inline ValueAndSlope<Real> gelu(Vec<Real> x) {
  constexpr Real inv_sqrt_2pi = Real(0.39894228040143267794);
  const Vec<Real> e = exp(Vec<Real>(x * x * Real(-0.5)));
  const Vec<Real> tail = normal_sf(magnitude(x), e);  // Φ(-|x|)
  const Vec<Real> cdf = x < 0 ? tail : 1 - tail;
  return {x * cdf, cdf + x * e * inv_sqrt_2pi};
}

// The same where both are rounded to bf16: Φ to a relative error of 4e-4.
inline ValueAndSlope<float> gelu_approx(Vec<float> x) {
  constexpr float inv_sqrt_2pi = 0.39894228f, half_log2_e = 0.72134752f;
  const Vec<float> size = magnitude(x);
  const Vec<float> e = fast_exp2(x * x * -half_log2_e);
  const Vec<float> tail = rough_normal_tail(size, e);  // Φ(-|x|)
  const Vec<float> bend = size * e * inv_sqrt_2pi - tail;
  return {max<float>(x, Vec<float>{}) - size * tail, x < 0 ? -bend : 1 + bend};
}

template <class Real>
inline ValueAndSlope<Real> gelu_tanh(Vec<Real> x) {
  // (1 + tanh(u))/2 = 1/(1 + exp(-2u)), u = root*(x + cubic*x^3), root = sqrt(2/pi).
  constexpr Real root = Real(0.79788456080286535588), cubic = Real(0.044715);
  const Vec<Real> square = x * x;
  const Vec<Real> e = exp(Vec<Real>(x * (-2 * root - 2 * root * cubic * square)));
  const Vec<Real> s = 1 / (1 + e), y = x * s, inner_slope = 2 * root + 6 * root * cubic * square;
  // 1 - s = e s does not cancel. Where s has reached 0 or 1, e or x^2 may be infinite, and 0 * inf would be
  // NaN.
  const Vec<Real> bend = select<Real>(square > 100, Vec<Real>{}, y * (e * s) * inner_slope);
  return {y, s + bend};
}

template <class Real>
inline ValueAndSlope<Real> silu(Vec<Real> x) {
  const Vec<Real> e = exp(Vec<Real>(-x)), s = 1 / (1 + e), y = x * s;
  const Vec<Real> rest = min<Real>(splat(Real(1e37)), e) * s;  // 1 - s, without its cancellation
  return {y, s + y * rest};
}

// Calls body with the function of `kind`.
template <class Real, class Body>
inline void dispatch_activation(ActivationKind kind, Body body) {
  switch (kind) {
    case ActivationKind::relu:
      return body([](Vec<Real> x) { return relu<Real>(x); });
    case ActivationKind::gelu:
      return body([](Vec<Real> x) { return gelu<Real>(x); });
    case ActivationKind::gelu_tanh:
      return body([](Vec<Real> x) { return gelu_tanh<Real>(x); });
    case ActivationKind::silu:
      return body([](Vec<Real> x) { return silu<Real>(x); });
  }
}

template <class Real>
void activation(ActivationKind kind, Index n, const Real* x, Real* y, Real* slope) {
  dispatch_activation<Real>(kind, [&](auto function) {
    for_each_vector<Real>(n, [&](Index i, auto part) {
      const ValueAndSlope<Real> at = function(part.get(x + i));
      part.put(y + i, at.value);
      part.put(slope + i, at.slope);
    });
  });
}

template <class Real>
void swiglu_forward(Index n, const Real* gate, const Real* x, Real* y) {
  for_each_vector<Real>(n, [&](Index i, auto part) {
    part.put(y + i, Vec<Real>(silu<Real>(part.get(gate + i)).value * part.get(x + i)));
  });
}

template <class Real>
void swiglu_backward(Index n, const Real* gate, const Real* x, const Real* dy, Real* dgate, Real gate_beta,
                     Real* dx, Real beta) {
  for_each_vector<Real>(n, [&](Index i, auto part) {
    const ValueAndSlope<Real> s = silu<Real>(part.get(gate + i));
    const Vec<Real> d = part.get(dy + i);
    add_into(dgate + i, gate_beta, Vec<Real>(d * part.get(x + i) * s.slope), part);
    add_into(dx + i, beta, Vec<Real>(d * s.value), part);
  });
}

}  // namespace normscope::NORMSCOPE_ISA
