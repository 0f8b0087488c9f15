// Rows of exponentials: log-sum-exp and softmax of logits, softmax of attention scores.
#pragma once

#include <utility>

#include "kernels/attention.h"
#include "kernels/simd/math.h"

namespace normscope::NORMSCOPE_ISA {

inline float logarithm(float x) { return __builtin_logf(x); }
inline double logarithm(double x) { return __builtin_log(x); }

constexpr float lowest(float) { return -3.0e38f; }
constexpr double lowest(double) { return -1.0e308; }

// log(sum exp(x_i)), by way of the maximum so that nothing overflows.
template <class Real>
Real log_sum_exp(Index n, const Real* x) {
  Vec<Real> largest = splat(lowest(Real{}));
  each_vector<Real>(
      n, [&](Index i, auto part) { largest = max<Real>(part.get(x + i, lowest(Real{})), largest); });
  const Real top = max_lanes<Real>(largest);
  Vec<Real> sum{};
  each_vector<Real>(n, [&](Index i, auto part) {
    // A lane past the end holds `lowest`; its exponential is 0.
    sum += exp(Vec<Real>(part.get(x + i, lowest(Real{})) - top));
  });
  return top + log(splat(sum_lanes<Real>(sum)))[0];
}

// dx_i = beta*dx_i + scale*exp(x_i - log_sum_exp).
template <class Real>
void add_softmax(Index n, const Real* x, Real log_sum, Real scale, Real* dx, Real beta) {
  each_vector<Real>(n, [&](Index i, auto part) {
    add_into(dx + i, beta, Vec<Real>(scale * exp(Vec<Real>(part.get(x + i) - log_sum))), part);
  });
}

// --- rows of attention: each sees one number more than the one above --------------------------------------

// Whole vectors are read and written; in lanes past the first `count`, `fill` is read and 0 written.
struct Masked {
  Index count;
  template <class Real>
  Vec<Real> get(const Real* p, Real fill = 0) const {
    return select<Real>(visible<Real>(), load(p), splat(fill));
  }
  template <class Real>
  void put(Real* p, Vec<Real> v) const {
    store(p, select<Real>(visible<Real>(), v, Vec<Real>{}));
  }

 private:
  template <class Real>
  MaskVec<Real> visible() const {
    typedef std::remove_reference_t<decltype(MaskVec<Real>{}[0])> Lane;
    return lane_numbers<Real>(std::make_index_sequence<lanes<Real>>()) < static_cast<Lane>(count);
  }
  template <class Real, std::size_t... i>
  static MaskVec<Real> lane_numbers(std::index_sequence<i...>) {
    return MaskVec<Real>{i...};
  }
};

// Calls body(i, part) for i = 0, lanes, ... < width, where `part` hides what lies past `visible`.
template <class Real, class Body>
inline void each_visible(Index visible, Index width, Body&& body) {
  Index i = 0;
  for (; i + lanes<Real> <= visible; i += lanes<Real>) body(i, Whole{});
  for (; i < width; i += lanes<Real>) body(i, Masked{visible - i > 0 ? visible - i : 0});
}

// P = softmax(S) in place, and the log-sum-exp of each row of S.
template <class Real>
void causal_softmax(const CausalRows& at, Real* scores, Real* log_sum_exp) {
  for (Index row = 0; row < at.rows; ++row) {
    Real* s = scores + row * at.stride;
    const Index visible = at.visible + row;
    Vec<Real> largest = splat(lowest(Real{}));
    each_visible<Real>(visible, visible, [&](Index i, auto part) {
      largest = max<Real>(part.get(s + i, lowest(Real{})), largest);
    });
    const Real top = max_lanes<Real>(largest);
    Vec<Real> sums{};
    each_visible<Real>(visible, visible, [&](Index i, auto part) {
      const Vec<Real> e = exp(Vec<Real>(part.get(s + i, lowest(Real{})) - top));
      sums += e;
      store(s + i, e);
    });
    const Real sum = sum_lanes<Real>(sums), inverse = 1 / sum;
    each_visible<Real>(visible, at.width,
                       [&](Index i, auto part) { part.put(s + i, Vec<Real>(part.get(s + i) * inverse)); });
    log_sum_exp[row] = top + logarithm(sum);
  }
}

// P from S once more, by the log-sum-exp that was kept.
template <class Real>
void causal_softmax_again(const CausalRows& at, const Real* log_sum_exp, Real* scores) {
  for (Index row = 0; row < at.rows; ++row) {
    Real* s = scores + row * at.stride;
    each_visible<Real>(at.visible + row, at.width, [&](Index i, auto part) {
      part.put(s + i, exp(Vec<Real>(part.get(s + i) - log_sum_exp[row])));
    });
  }
}

// Through the softmax: dS = P (dP - sum_j P_j dP_j of the row). In place of dP. The sum equals dO·O, which
// others take; but of these very numbers it makes the row of dS sum to 0 however large they are, to 0 itself
// where one weight is 1. What is left of a difference that is only nearly 0 would be multiplied by Q and K.
template <class Real>
void causal_softmax_backward(const CausalRows& at, const Real* weights, Real* grads) {
  for (Index row = 0; row < at.rows; ++row) {
    const Real* p = weights + row * at.stride;
    Real* dp = grads + row * at.stride;
    Vec<Real> sums{};
    each_visible<Real>(at.visible + row, at.visible + row,
                       [&](Index i, auto part) { sums += part.get(p + i) * part.get(dp + i); });
    const Real delta = sum_lanes<Real>(sums);
    each_visible<Real>(at.visible + row, at.width, [&](Index i, auto part) {
      part.put(dp + i, Vec<Real>(part.get(p + i) * (part.get(dp + i) - delta)));
    });
  }
}

}  // namespace normscope::NORMSCOPE_ISA
