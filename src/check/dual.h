// Numbers that carry a derivative: forward-mode differentiation, exact but for rounding.
#pragma once

#include <cmath>
#include <numbers>
#include <vector>

namespace normscope {

// A number and its derivative along one direction of the parameters.
struct Dual {
  double value, slope;
  Dual(double number = 0, double derivative = 0) : value(number), slope(derivative) {}
};
using Duals = std::vector<Dual>;

inline auto operator<=>(Dual a, Dual b) { return a.value <=> b.value; }
inline Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
inline Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
inline Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
inline Dual operator/(Dual a, Dual b) {
  const double ratio = a.value / b.value;
  return {ratio, (a.slope - ratio * b.slope) / b.value};
}
inline Dual& operator+=(Dual& a, Dual b) { return a = a + b; }
inline Dual& operator*=(Dual& a, Dual b) { return a = a * b; }

inline Dual exp(Dual x) { return {std::exp(x.value), std::exp(x.value) * x.slope}; }
inline Dual log(Dual x) { return {std::log(x.value), x.slope / x.value}; }
inline Dual tanh(Dual x) {
  const double y = std::tanh(x.value);
  return {y, (1 - y * y) * x.slope};
}
inline Dual sqrt(Dual x) {  // a constant's derivative is 0, at 0 too
  const double root = std::sqrt(x.value);
  return {root, x.slope == 0 ? 0 : x.slope / (2 * root)};
}
inline Dual erf(Dual x) {
  return {std::erf(x.value), 2 * std::numbers::inv_sqrtpi * std::exp(-x.value * x.value) * x.slope};
}
inline Dual erfc(Dual x) { return {std::erfc(x.value), -erf(x).slope}; }

}  // namespace normscope
