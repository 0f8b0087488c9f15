// Rows of exponentials: softmax of attention scores, log-sum-exp of logits.
#pragma once

#include "kernels/simd/math.h"

namespace normscope::NORMSCOPE_ISA {

inline float logarithm(float x) { return __builtin_logf(x); }
inline double logarithm(double x) { return __builtin_log(x); }

constexpr float lowest(float) { return -3.0e38f; }
constexpr double lowest(double) { return -1.0e308; }

// log(sum exp(scale*x_i)), by way of the maximum so that nothing overflows.
template <class Real>
Real log_sum_exp(Index n, const Real* x, Real scale) {
  Vec<Real> largest = splat(lowest(Real{}));
  each_vector<Real>(
      n, [&](Index i, auto part) { largest = max<Real>(part.get(x + i, lowest(Real{})), largest); });
  const Real top = max_lanes<Real>(largest);
  Vec<Real> sum{};
  each_vector<Real>(n, [&](Index i, auto part) {
    // A lane past the end holds `lowest`; its exponential is 0.
    sum += exp(Vec<Real>((part.get(x + i, lowest(Real{})) - top) * scale));
  });
  return top * scale + logarithm(sum_lanes<Real>(sum));
}

// p_i = exp(scale*x_i - log_sum_exp) for i < n. In place if p is x.
template <class Real>
void softmax(Index n, const Real* x, Real scale, Real log_sum, Real* p) {
  each_vector<Real>(
      n, [&](Index i, auto part) { part.put(p + i, exp(Vec<Real>(part.get(x + i) * scale - log_sum))); });
}

// Through the softmax: ds_i = p_i (dp_i - delta) scale, delta = sum p_j dp_j. In place of dp.
template <class Real>
void softmax_backward(Index n, const Real* p, Real delta, Real scale, Real* dp) {
  each_vector<Real>(n, [&](Index i, auto part) {
    part.put(dp + i, Vec<Real>(part.get(p + i) * (part.get(dp + i) - delta) * scale));
  });
}

// dx_i = beta*dx_i + scale*exp(x_i - log_sum_exp).
template <class Real>
void add_softmax(Index n, const Real* x, Real log_sum, Real scale, Real* dx, Real beta) {
  each_vector<Real>(n, [&](Index i, auto part) {
    add_into(dx + i, beta, Vec<Real>(scale * exp(Vec<Real>(part.get(x + i) - log_sum))), part);
  });
}

}  // namespace normscope::NORMSCOPE_ISA
