#include "kernels/pointwise.h"

#include <algorithm>

#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index swiglu_block = 8192;
constexpr Index cols_per_block = 64;
constexpr Index rows_per_block = 32;  // in a partial sum: keeps rounding error low

}  // namespace

void TensorStats::operator+=(const TensorStats& other) {
  sum += other.sum;
  sum_squares += other.sum_squares;
  abs_max = std::max(abs_max, other.abs_max);
  nonfinite += other.nonfinite;
  count += other.count;
}

template <class Real>
void swiglu_forward(Index n, const Real* gate, const Real* x, Real* y) {
  parallel_blocks(n, swiglu_block, [&](Index begin, Index end) {
    kernels<Real>().swiglu_forward(end - begin, gate + begin, x + begin, y + begin);
  });
}

template <class Real>
void swiglu_backward(Index n, const Real* gate, const Real* x, const Real* dy, Real* dgate, Real gate_beta,
                     Real* dx, Real beta) {
  parallel_blocks(n, swiglu_block, [&](Index begin, Index end) {
    kernels<Real>().swiglu_backward(end - begin, gate + begin, x + begin, dy + begin, dgate + begin,
                                    gate_beta, dx + begin, beta);
  });
}

template <class Real>
void fill_zero(Index n, Real* x) {
  parallel_blocks(n, elements_per_block,
                  [&](Index begin, Index end) { std::fill_n(x + begin, end - begin, Real(0)); });
}

template <class Real>
void axpby(Index n, Real alpha, const Real* x, Real beta, Real* y) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    kernels<Real>().axpby(end - begin, alpha, x + begin, beta, y + begin);
  });
}

template <class Real>
void add_rows(Index rows, Index cols, Index stride, const Real* x, Real beta, Real* y) {
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    for (Index i = begin * stride; i < end * stride; i += stride) {
      kernels<Real>().axpby(cols, Real(1), x + i, beta, y + i);
    }
  });
}

template <class Real>
void axpy(Index n, Real alpha, const Real* a, const Real* b, Real* y) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    kernels<Real>().axpy(end - begin, alpha, a + begin, b + begin, y + begin);
  });
}

template <class Real>
void multiply(Index n, const Real* a, const Real* b, Real* y) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    kernels<Real>().multiply(end - begin, a + begin, b + begin, y + begin);
  });
}

template <class Real>
void sum_rows(Index rows, Index cols, const Real* x, Real* sum) {
  parallel_blocks(cols, cols_per_block, [&](Index begin, Index end) {
    for (Index first = 0; first < rows; first += rows_per_block) {
      alignas(64) Real partial[cols_per_block];
      for (Index row = first; row < std::min(rows, first + rows_per_block); ++row) {
        kernels<Real>().axpby(end - begin, Real(1), x + row * cols + begin, Real(row > first), partial);
      }
      kernels<Real>().axpby(end - begin, Real(1), partial, Real(1), sum + begin);
    }
  });
}

template <class Real>
double dot(Index n, const Real* a, const Real* b) {
  return sum_over_blocks<double>(
      n, [&](Index begin, Index count) { return kernels<Real>().dot(count, a + begin, b + begin); });
}

template <class Real>
double sum_squares(Index n, const Real* x) {
  return sum_over_blocks<double>(
      n, [&](Index begin, Index count) { return kernels<Real>().sum_squares(count, x + begin); });
}

template <class Real>
TensorStats tensor_stats(Index n, const Real* x) {
  return sum_over_blocks<TensorStats>(
      n, [&](Index begin, Index count) { return kernels<Real>().tensor_stats(count, x + begin); });
}

template void swiglu_forward(Index, const float*, const float*, float*);
template void swiglu_forward(Index, const double*, const double*, double*);
template void swiglu_backward(Index, const float*, const float*, const float*, float*, float, float*, float);
template void swiglu_backward(Index, const double*, const double*, const double*, double*, double, double*,
                              double);
template void fill_zero(Index, float*);
template void fill_zero(Index, double*);
template void axpby(Index, float, const float*, float, float*);
template void axpby(Index, double, const double*, double, double*);
template void add_rows(Index, Index, Index, const float*, float, float*);
template void add_rows(Index, Index, Index, const double*, double, double*);
template void axpy(Index, float, const float*, const float*, float*);
template void axpy(Index, double, const double*, const double*, double*);
template void multiply(Index, const float*, const float*, float*);
template void multiply(Index, const double*, const double*, double*);
template void sum_rows(Index, Index, const float*, float*);
template void sum_rows(Index, Index, const double*, double*);
template double dot(Index, const float*, const float*);
template double dot(Index, const double*, const double*);
template double sum_squares(Index, const float*);
template double sum_squares(Index, const double*);
template TensorStats tensor_stats(Index, const float*);
template TensorStats tensor_stats(Index, const double*);

}  // namespace normscope
