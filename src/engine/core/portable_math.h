// Elementary functions of doubles by IEEE operations alone, so that whatever reaches a training run has the
// same bits with every compiler and C library. Errors are a few units in the last place; the domain is that
// of their uses.
#pragma once

#include <cmath>
#include <numbers>

#include "core/types.h"

namespace normscope::portable {

// ln 2 in two parts, of which the first has trailing zeros: its product with an exponent is exact.
constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;

// e^x: x = n ln2 + r with |r| <= ln2/2; e^r by its series, whose first neglected term is 4e-18.
inline double exp(double x) {
  if (!(x > -745)) return x == x ? 0 : x;
  if (x > 709.78) return INFINITY;
  const double n = std::floor(x * std::numbers::log2e + 0.5);
  const double r = (x - n * ln2_high) - n * ln2_low;
  double series = 1;
  for (int k = 13; k >= 1; --k) series = 1 + series * r / k;
  return std::ldexp(series, static_cast<int>(n));
}

// ln x, x >= 0: x = m 2^e with m from sqrt(1/2) to sqrt(2); ln m = 2 artanh s, s = (m - 1)/(m + 1), by its
// series, whose first neglected term is 6e-19.
inline double log(double x) {
  if (!(x > 0) || std::isinf(x)) return x == 0 ? -INFINITY : x > 0 ? x : NAN;
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < std::numbers::sqrt2 / 2) m *= 2, --exponent;
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 0;
  for (int k = 21; k >= 1; k -= 2) series = series * square + 1.0 / k;
  return exponent * ln2_high + (exponent * ln2_low + 2 * s * series);
}

// The series of sine and cosine for |r| <= pi/4; first neglected terms 8e-20 and 3e-21.
inline double sine_series(double r) {
  double series = 1;
  for (int k = 16; k >= 2; k -= 2) series = 1 - series * r * r / (k * (k + 1));
  return series * r;
}
inline double cosine_series(double r) {
  double series = 1;
  for (int k = 17; k >= 1; k -= 2) series = 1 - series * r * r / (k * (k + 1));
  return series;
}

// sin(x + quarters pi/2), |x| < 10^6: x = n pi/2 + r; pi/2 in three parts, of which two have exact products
// with n.
inline double sin(double x, int quarters = 0) {
  const double n = std::floor(x * 2 / std::numbers::pi + 0.5);
  const double r = ((x - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11) -
                   n * 2.02226624879595063154e-21;
  switch ((static_cast<Index>(n) + quarters) & 3) {
    case 0:
      return sine_series(r);
    case 1:
      return cosine_series(r);
    case 2:
      return -sine_series(r);
    default:
      return -cosine_series(r);
  }
}
inline double cos(double x) { return sin(x, 1); }

// x^n, n >= 0, by squaring.
inline double power(double x, Index n) {
  double result = 1;
  for (; n > 0; n /= 2, x *= x) {
    if (n % 2 == 1) result *= x;
  }
  return result;
}

// x^y, x > 0: by multiplication and square roots if y is a multiple of 1/4, as placements' exponents are.
inline double pow(double x, double y) {
  const double quarters = std::abs(y) * 4;
  if (quarters != std::floor(quarters) || quarters > 64) return exp(y * log(x));
  const auto n = static_cast<Index>(quarters);
  double result = power(x, n / 4);
  if (n % 4 >= 2) result *= std::sqrt(x);
  if (n % 2 == 1) result *= std::sqrt(std::sqrt(x));
  return y < 0 ? 1 / result : result;
}

}  // namespace normscope::portable
