#include "kernels/elementwise.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/reduce.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index cols_per_block = 64;
constexpr Index rows_per_partial = 32;  // summed by themselves first: rounding grows with neither number

}  // namespace

template <class Real>
void clear(Index n, Real* x) {
  parallel_blocks(n, elements_per_block,
                  [&](Index begin, Index end) { std::fill_n(x + begin, end - begin, Real(0)); });
}

template <class Real>
void scale_add(Index n, Real alpha, const Real* x, Real beta, Real* y) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    simd<Real>().scale_add(end - begin, alpha, x + begin, beta, y + begin);
  });
}

template <class Real>
void weighted_sum(Index n, Real alpha, const Real* a, const Real* b, Real* y) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    simd<Real>().weighted_sum(end - begin, alpha, a + begin, b + begin, y + begin);
  });
}

template <class Real>
void multiply(Index n, const Real* a, const Real* b, Real* y) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    simd<Real>().multiply(end - begin, a + begin, b + begin, y + begin);
  });
}

template <class Real>
void add_rows(Index rows, Index cols, const Real* x, Real* sum) {
  parallel_blocks(cols, cols_per_block, [&](Index begin, Index end) {
    for (Index first = 0; first < rows; first += rows_per_partial) {
      alignas(64) Real partial[cols_per_block];
      for (Index row = first; row < std::min(rows, first + rows_per_partial); ++row) {
        simd<Real>().scale_add(end - begin, Real(1), x + row * cols + begin, Real(row > first), partial);
      }
      simd<Real>().scale_add(end - begin, Real(1), partial, Real(1), sum + begin);
    }
  });
}

template <class Real>
double dot(Index n, const Real* a, const Real* b) {
  double total = 0;
  reduce_blocks<double>(
      n, [&](Index begin, Index count) { return simd<Real>().dot(count, a + begin, b + begin); },
      [&](double part) { total += part; });
  return total;
}

template <class Real>
double sum_squares(Index n, const Real* x) {
  double total = 0;
  reduce_blocks<double>(
      n, [&](Index begin, Index count) { return simd<Real>().sum_squares(count, x + begin); },
      [&](double part) { total += part; });
  return total;
}

void Moments::merge(const Moments& other) {
  sum += other.sum;
  sum_squares += other.sum_squares;
  abs_max = std::max(abs_max, other.abs_max);
  nonfinite += other.nonfinite;
  count += other.count;
}

template <class Real>
Moments moments(Index n, const Real* x) {
  return sum_of_moments(n, [&](Index begin, Index count) { return simd<Real>().moments(count, x + begin); });
}

template void clear(Index, float*);
template void clear(Index, double*);
template void scale_add(Index, float, const float*, float, float*);
template void scale_add(Index, double, const double*, double, double*);
template void weighted_sum(Index, float, const float*, const float*, float*);
template void weighted_sum(Index, double, const double*, const double*, double*);
template void multiply(Index, const float*, const float*, float*);
template void multiply(Index, const double*, const double*, double*);
template void add_rows(Index, Index, const float*, float*);
template void add_rows(Index, Index, const double*, double*);
template double dot(Index, const float*, const float*);
template double dot(Index, const double*, const double*);
template double sum_squares(Index, const float*);
template double sum_squares(Index, const double*);
template Moments moments(Index, const float*);
template Moments moments(Index, const double*);

}  // namespace normscope
