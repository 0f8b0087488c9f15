// The activations by the C++ library's functions, in double.
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/activation.h"

namespace normscope::reference {

inline double normal_cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
inline double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// f(x). NaN stays NaN.
inline double activation_value(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::relu:
      return x <= 0 ? 0 : x;
    case ActivationKind::gelu:
      return x * normal_cdf(x);
    case ActivationKind::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case ActivationKind::silu:
      return x * logistic(x);
  }
  return 0;
}

// f'(x).
inline double activation_slope(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::relu:
      return x <= 0 ? 0 : 1;
    case ActivationKind::gelu:
      return normal_cdf(x) + x * normal_density(x);
    case ActivationKind::gelu_tanh: {
      const double root = std::sqrt(2 / std::numbers::pi);
      const double t = std::tanh(root * (x + 0.044715 * x * x * x));
      return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
    }
    case ActivationKind::silu:
      return logistic(x) * (1 + x * (1 - logistic(x)));
  }
  return 0;
}

}  // namespace normscope::reference
