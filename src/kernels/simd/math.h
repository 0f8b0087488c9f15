// exp, erfc and tanh on vectors. float: polynomials, no library calls. double: the library's, lane by lane,
// since double is the yardstick that float is measured against.
#pragma once

#include "kernels/simd/vector.h"

namespace normscope::NORMSCOPE_ISA {

// e^x. float: relative error below 2e-7; 0 below -87.3, 2.4e38 above 88; NaN stays NaN.
// Cody-Waite: x = n ln2 + r with |r| <= ln2/2; e^r by a polynomial (our own minimax fit, 3e-9); 2^n by
// exponent bits.
inline Vec<float> exp(Vec<float> x) {
  constexpr float to_nearest =
      12582912.0f;  // 1.5 * 2^23: adding it leaves the rounded number in the low bits
  const Vec<float> lowest = splat(-87.33f);
  const MaskVec<float> underflow = x < lowest;
  x = select<float>(underflow, lowest, select<float>(x > 88.0f, splat(88.0f), x));
  const Vec<float> shifted = x * 1.44269504089f + to_nearest;
  const MaskVec<float> n = reinterpret_cast<MaskVec<float>>(shifted) - 0x4B400000;  // the bits of to_nearest
  const Vec<float> nf = shifted - to_nearest;
  const Vec<float> r = (x - nf * 0.693359375f) + nf * 2.12194440e-4f;  // ln2 in two parts, the first exact
  Vec<float> p = splat(0.00138146f);
  p = p * r + 0.00836871564f;
  p = p * r + 0.041668389f;
  p = p * r + 0.166665211f;
  p = p * r + 0.49999994f;
  p = p * r * r + r + 1.0f;
  const Vec<float> scaled = p * reinterpret_cast<Vec<float>>((n + 127) << 23);
  return select<float>(underflow, Vec<float>{}, scaled);
}

inline Vec<double> exp(Vec<double> x) {
  for (Index i = 0; i < lanes<double>; ++i) x[i] = __builtin_exp(x[i]);
  return x;
}

// erfc(z) for z >= 0, given e = exp(-z*z), which callers need anyway. Relative error below 5e-7, in the tail
// too. erfc(z) e^(z^2) = t P(t), t = 1/(1 + 0.3 z): the form of Abramowitz & Stegun 7.1.26, our own fit of
// degree 8.
inline Vec<float> erfc_positive(Vec<float> z, Vec<float> e) {
  const Vec<float> t = 1.0f / (1.0f + 0.3f * z);
  Vec<float> p = splat(-0.129457861f);
  p = p * t + 0.485221475f;
  p = p * t - 0.511508465f;
  p = p * t + 0.546750724f;
  p = p * t - 0.0939052254f;
  p = p * t + 0.214568079f;
  p = p * t + 0.148443818f;
  p = p * t + 0.170698225f;
  p = p * t + 0.169189185f;
  return p * t * e;
}

inline Vec<double> erfc_positive(Vec<double> z, Vec<double>) {
  for (Index i = 0; i < lanes<double>; ++i) z[i] = __builtin_erfc(z[i]);
  return z;
}

// tanh(x). float: absolute error below 2e-7, and relative below 1e-6 near 0, where the odd series takes over.
inline Vec<float> tanh(Vec<float> x) {
  const Vec<float> magnitude = x < 0.0f ? -x : x;
  const Vec<float> e = exp(Vec<float>(-2.0f * magnitude));
  const Vec<float> far = (1.0f - e) / (1.0f + e);
  const Vec<float> s = x * x;
  const Vec<float> near =
      magnitude * (1.0f + s * (-1.0f / 3 + s * (2.0f / 15 + s * (-17.0f / 315 + s * (62.0f / 2835)))));
  const Vec<float> y = select<float>(magnitude < 0.25f, near, far);
  return x < 0.0f ? -y : y;
}

inline Vec<double> tanh(Vec<double> x) {
  for (Index i = 0; i < lanes<double>; ++i) x[i] = __builtin_tanh(x[i]);
  return x;
}

}  // namespace normscope::NORMSCOPE_ISA
