// Elementwise work on arrays, and sums over them: drivers that cut it into blocks of fixed size, which
// threads share. Sums add their blocks in order.
#pragma once

#include <algorithm>

#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {

constexpr Index swiglu_block = 8192;

// y = silu(gate) * x.
template <class Real>
void swiglu_forward(Index n, const Real* gate, const Real* x, Real* y) {
  parallel_blocks(n, swiglu_block, [&](Index begin, Index end) {
    kernels<Real>().swiglu_forward(end - begin, gate + begin, x + begin, y + begin);
  });
}

// dgate = gate_beta*dgate + ..., then dx = beta*dx + ...; the two may be one array.
template <class Real>
void swiglu_backward(Index n, const Real* gate, const Real* x, const Real* dy, Real* dgate, Real gate_beta,
                     Real* dx, Real beta) {
  parallel_blocks(n, swiglu_block, [&](Index begin, Index end) {
    kernels<Real>().swiglu_backward(end - begin, gate + begin, x + begin, dy + begin, dgate + begin,
                                    gate_beta, dx + begin, beta);
  });
}

// x = 0.
template <class Real>
void fill_zero(Index n, Real* x) {
  parallel_blocks(n, elements_per_block,
                  [&](Index begin, Index end) { std::fill_n(x + begin, end - begin, Real(0)); });
}

// y = alpha*x + beta*y; y is not read when beta is 0.
template <class Real>
void axpby(Index n, Real alpha, const Real* x, Real beta, Real* y) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    kernels<Real>().axpby(end - begin, alpha, x + begin, beta, y + begin);
  });
}

// y = x + beta*y for each of `rows` rows of `cols` numbers, `stride` apart in both.
template <class Real>
void add_rows(Index rows, Index cols, Index stride, const Real* x, Real beta, Real* y) {
  constexpr Index rows_per_block = 32;
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    for (Index i = begin * stride; i < end * stride; i += stride) {
      kernels<Real>().axpby(cols, Real(1), x + i, beta, y + i);
    }
  });
}

// y = alpha*a + b.
template <class Real>
void add_scaled(Index n, Real alpha, const Real* a, const Real* b, Real* y) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    kernels<Real>().add_scaled(end - begin, alpha, a + begin, b + begin, y + begin);
  });
}

// y = a*b, element by element; y may be either.
template <class Real>
void multiply(Index n, const Real* a, const Real* b, Real* y) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    kernels<Real>().multiply(end - begin, a + begin, b + begin, y + begin);
  });
}

// sum += the sum over rows of x (rows, cols), column by column.
template <class Real>
void sum_rows(Index rows, Index cols, const Real* x, Real* sum) {
  constexpr Index cols_per_block = 64;
  constexpr Index rows_per_sum = 32;  // short partial sums keep the rounding error low
  parallel_blocks(cols, cols_per_block, [&](Index begin, Index end) {
    for (Index first = 0; first < rows; first += rows_per_sum) {
      alignas(64) Real partial[cols_per_block];
      for (Index row = first; row < std::min(rows, first + rows_per_sum); ++row) {
        kernels<Real>().axpby(end - begin, Real(1), x + row * cols + begin, Real(row > first), partial);
      }
      kernels<Real>().axpby(end - begin, Real(1), partial, Real(1), sum + begin);
    }
  });
}

// The sum of a[i]*b[i], accumulated in double.
template <class Real>
double dot(Index n, const Real* a, const Real* b) {
  return sum_over_blocks<double>(
      n, [&](Index begin, Index count) { return kernels<Real>().dot(count, a + begin, b + begin); });
}

// The sum of x[i]². Squares of floats neither underflow nor overflow in it.
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

}  // namespace normscope
