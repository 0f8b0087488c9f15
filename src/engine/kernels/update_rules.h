// The optimisers' update rules. A rule changes one weight w and its moments m and v, given the gradient g;
// kernels<Real>().update applies it to arrays.
#pragma once

#include <limits>
#include <variant>

namespace normscope {

// Always inlined, so that each instruction set compiles its own copy.
[[gnu::always_inline]] inline float square_root(float x) { return __builtin_sqrtf(x); }
[[gnu::always_inline]] inline double square_root(double x) { return __builtin_sqrt(x); }

// x, or 0 if |x| is below the least normal number: without a gradient a moment would otherwise stay subnormal
// for ever, and some processors are slow with subnormal numbers.
template <class Real>
[[gnu::always_inline]] inline Real without_subnormal(Real x) {
  return (x < 0 ? -x : x) < std::numeric_limits<Real>::min() ? 0 : x;
}

// AdamW (Loshchilov & Hutter 2019), the arithmetic of PyTorch's: with the bias-corrected moments m̂ and v̂,
//   w = w (1 - lr*wd) - lr m̂ / (sqrt(v̂) + eps)
template <class Real>
struct AdamW {
  Real gradient_scale;  // from clipping
  Real beta1, beta2;
  // Rounded from double: with beta near 1, 1 - beta in float has no digits left.
  Real one_minus_beta1, one_minus_beta2;
  Real eps;
  Real decay;                 // 1 - lr*wd, or 1 where no weight decay applies
  Real step_size;             // lr / (1 - beta1^t)
  Real inv_sqrt_correction2;  // 1 / sqrt(1 - beta2^t)

  [[gnu::always_inline]] void operator()(Real g, Real& w, Real& m, Real& v) const {
    constexpr Real least_normal = std::numeric_limits<Real>::min();
    // Beside a smaller eps, sqrt(v) of such a v counts: a v of 0 would make the step too long, or divide by
    // 0.
    const Real least_v = eps * eps >= least_normal ? least_normal : 0;
    const Real gradient = g * gradient_scale;
    const Real next_m = beta1 * m + one_minus_beta1 * gradient;
    const Real next_v = beta2 * v + one_minus_beta2 * gradient * gradient;
    m = without_subnormal(next_m);
    v = next_v < least_v ? 0 : next_v;
    w = w * decay - step_size * m / (square_root(v) * inv_sqrt_correction2 + eps);
  }
};

// SGD with momentum: m = momentum*m + g, w = w decay - lr m.
template <class Real>
struct Sgd {
  Real gradient_scale, momentum, decay, lr;

  [[gnu::always_inline]] void operator()(Real g, Real& w, Real& m, Real&) const {
    m = without_subnormal(momentum * m + g * gradient_scale);
    w = w * decay - lr * m;
  }
};

// Muon's step, along a direction g made from gradient and momentum: w = w decay - lr g.
template <class Real>
struct AlongDirection {
  Real decay, lr;

  [[gnu::always_inline]] void operator()(Real g, Real& w, Real&, Real&) const { w = w * decay - lr * g; }
};

template <class Real>
using UpdateRule = std::variant<AdamW<Real>, Sgd<Real>, AlongDirection<Real>>;

}  // namespace normscope
