// Sums, products and statistics of arrays. Parallel over blocks of fixed size; sums add their blocks in
// order.
#pragma once

#include "core/types.h"

namespace normscope {

// x = 0.
template <class Real>
void clear(Index n, Real* x);

// y = alpha*x + beta*y; y is not read when beta is 0.
template <class Real>
void scale_add(Index n, Real alpha, const Real* x, Real beta, Real* y);

// y = alpha*a + b.
template <class Real>
void weighted_sum(Index n, Real alpha, const Real* a, const Real* b, Real* y);

// y = a*b, element by element; y may be either.
template <class Real>
void multiply(Index n, const Real* a, const Real* b, Real* y);

// sum += the sum over rows of x (rows, cols), column by column.
template <class Real>
void add_rows(Index rows, Index cols, const Real* x, Real* sum);

// The sum of a[i]*b[i], accumulated in double.
template <class Real>
double dot(Index n, const Real* a, const Real* b);

// The sum of x[i]^2. Squares of floats neither underflow nor overflow in it.
template <class Real>
double sum_squares(Index n, const Real* x);

// What layers.csv shows of a tensor; squares as in sum_squares().
struct Moments {
  double sum = 0, sum_squares = 0;
  double abs_max = 0;  // over the numbers that are not NaN
  Index nonfinite = 0;
  Index count = 0;

  void merge(const Moments& other);
};

template <class Real>
Moments moments(Index n, const Real* x);

}  // namespace normscope
