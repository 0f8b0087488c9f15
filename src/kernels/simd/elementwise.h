// Serial sums, products, statistics, the optimiser's update.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "kernels/simd/vector.h"

namespace normscope::NORMSCOPE_ISA {

template <class Real>
void scale_add(Index n, Real alpha, const Real* x, Real beta, Real* y) {
  for_each_vector<Real>(
      n, [&](Index i, auto part) { add_into(y + i, beta, Vec<Real>(alpha * part.get(x + i)), part); });
}

template <class Real>
void weighted_sum(Index n, Real alpha, const Real* a, const Real* b, Real* y) {
  for_each_vector<Real>(
      n, [&](Index i, auto part) { part.put(y + i, Vec<Real>(alpha * part.get(a + i) + part.get(b + i))); });
}

template <class Real>
void multiply_elements(Index n, const Real* a, const Real* b, Real* y) {
  for_each_vector<Real>(
      n, [&](Index i, auto part) { part.put(y + i, Vec<Real>(part.get(a + i) * part.get(b + i))); });
}

// In double: a scale's gradient is the small difference of large sums.
template <class Real>
double dot(Index n, const Real* a, const Real* b) {
  WideVec<Real> sum{};
  for_each_vector<Real>(n, [&](Index i, auto part) {
    sum += __builtin_convertvector(part.get(a + i), WideVec<Real>) *
           __builtin_convertvector(part.get(b + i), WideVec<Real>);
  });
  return sum_wide<Real>(sum);
}

// Whether a sum of squares of floats holds them all: below, squares that count may have been too small for a
// float; above, some were too large. Such a sum is taken again in double, whose range is that of the squares.
inline bool in_range(float sum_squares) { return sum_squares > 1e-26f && sum_squares < 1e38f; }
inline bool in_range(double sum_squares) { return sum_squares - sum_squares == 0; }

constexpr Index piece = 512;  // stays in the first cache

// Piece by piece, in double from one to the next.
template <class Real>
double sum_squares(Index n, const Real* x) {
  double total = 0;
  for (; n > 0; x += piece, n -= piece) {
    const Index count = n < piece ? n : piece;
    Vec<Real> sum{};
    for_each_vector<Real>(count, [&](Index i, auto part) {
      const Vec<Real> v = part.get(x + i);
      sum += v * v;
    });
    const Real squares = sum_lanes<Real>(sum);
    total += in_range(squares) ? squares : dot(count, x, x);
  }
  return total;
}

// Sums and the largest magnitude of one stride of a tensor. Magnitudes are compared as whole numbers: without
// the sign bit, floating-point numbers are ordered as their bits are, and that takes one instruction.
template <class Real>
struct LaneMoments {
  using Bits = MaskVec<Real>;
  Vec<Real> sum{}, squares{};
  Bits largest{};

  void add(Vec<Real> v) {
    const Bits magnitude = (Bits)v & ~(Bits)splat(Real(-0.0));
    sum += v;
    squares += v * v;
    largest = magnitude > largest ? magnitude : largest;
  }
  void merge(const LaneMoments& other) {
    sum += other.sum;
    squares += other.squares;
    largest = other.largest > largest ? other.largest : largest;
  }
};

template <class Real>
Moments moments(Index n, const Real* x) {
  constexpr Index width = lanes<Real>;
  LaneMoments<Real> all, second, third, fourth;  // alone, one would wait for its last addition
  Index i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    all.add(load(x + i));
    second.add(load(x + i + width));
    third.add(load(x + i + 2 * width));
    fourth.add(load(x + i + 3 * width));
  }
  for_each_vector<Real>(n - i, [&](Index rest, auto part) { all.add(part.get(x + i + rest)); });
  all.merge(second);
  third.merge(fourth);
  all.merge(third);
  const Real squares = sum_lanes<Real>(all.squares);
  Moments result{sum_lanes<Real>(all.sum), squares, max_lanes<Real>((Vec<Real>)all.largest), 0, n};
  if (in_range(squares) || (squares == 0 && result.abs_max == 0)) return result;

  // Squares are out of a float's range, or something is not finite: now it is worth looking at each number.
  WideVec<Real> wide_sum{}, wide_squares{};
  MaskVec<Real> bad{};
  Vec<Real> largest{};
  for_each_vector<Real>(n, [&](Index k, auto part) {
    const Vec<Real> v = part.get(x + k), magnitude = v < 0 ? -v : v;
    const WideVec<Real> wide = __builtin_convertvector(v, WideVec<Real>);
    wide_sum += wide;
    wide_squares += wide * wide;
    largest = max<Real>(magnitude, largest);  // NaN is never the larger one
    bad += (v - v != v - v);                  // inf - inf is NaN; a true lane is -1
  });
  result.sum = sum_wide<Real>(wide_sum);
  result.sum_squares = sum_wide<Real>(wide_squares);
  result.abs_max = max_lanes<Real>(largest);
  for (Index lane = 0; lane < width; ++lane) result.nonfinite -= bad[lane];
  return result;
}

// Runs update(begin, end) piece by piece and sums what it does to w, while the piece is in the first cache.
template <class Real, class Update>
WeightChange measured(Index n, const Real* w, Update update) {
  Real change[piece];
  WeightChange total;
  for (Index begin = 0; begin < n; begin += piece) {
    const Index count = n - begin < piece ? n - begin : piece;
    for (Index i = 0; i < count; ++i) change[i] = w[begin + i];
    total.before += sum_squares(count, change);
    update(begin, begin + count);
    for (Index i = 0; i < count; ++i) change[i] = w[begin + i] - change[i];
    total.change += sum_squares(count, change);
  }
  return total;
}

// Plain loops: the compiler vectorises them, square root and all.
template <class Real>
void adamw_update(Index n, const AdamW<Real>& step, const Real* __restrict g, Real* __restrict w,
                  Real* __restrict m, Real* __restrict v) {
  for (Index i = 0; i < n; ++i) {
    const Real grad = g[i] * step.gradient_scale;
    m[i] = step.beta1 * m[i] + step.one_minus_beta1 * grad;
    v[i] = step.beta2 * v[i] + step.one_minus_beta2 * grad * grad;
    const Real denominator = square_root(v[i]) * step.inv_sqrt_correction2 + step.eps;
    w[i] = w[i] * step.decay - step.step_size * m[i] / denominator;
  }
}

template <class Real>
WeightChange adamw(Index n, const AdamW<Real>& step, const Real* g, Real* w, Real* m, Real* v) {
  return measured(n, w, [&](Index begin, Index end) {
    adamw_update(end - begin, step, g + begin, w + begin, m + begin, v + begin);
  });
}

template <class Real>
void sgd_update(Index n, const Sgd<Real>& step, const Real* __restrict g, Real* __restrict w,
                Real* __restrict v) {
  for (Index i = 0; i < n; ++i) {
    v[i] = step.momentum * v[i] + g[i] * step.gradient_scale;
    w[i] = w[i] * step.decay - step.lr * v[i];
  }
}

template <class Real>
WeightChange sgd(Index n, const Sgd<Real>& step, const Real* g, Real* w, Real* v) {
  return measured(
      n, w, [&](Index begin, Index end) { sgd_update(end - begin, step, g + begin, w + begin, v + begin); });
}

}  // namespace normscope::NORMSCOPE_ISA
