// bf16 storage for tensors that only GEMMs read: half the traffic, and identical results, because the GEMM
// would round its operands to bf16 anyway. Only floats are stored so; of doubles these are the plain kernels.
#pragma once

#include <span>

#include "core/matrix.h"
#include "kernels/pointwise.h"

namespace normscope {

// out = x, rounded to nearest, ties to even; out is bf16, x is not.
void to_bf16(const Matrix<float>& x, const Matrix<float>& out);
void to_bf16(const Matrix<double>& x, const Matrix<double>& out);  // refuses

// out (rows, cols), dense, = x of either dtype.
template <class Real>
void to_float(const Matrix<Real>& x, Real* out);

// Statistics of all elements of x, of either dtype.
template <class Real>
TensorStats tensor_stats(const Matrix<Real>& x);

// A tensor and its measured statistics: those of all its elements, sums of squares by column, and the sum
// over rows of the cosine between its row and that of `other`.
template <class Real>
struct ColumnStats {
  Matrix<Real> x;
  double* squares;              // (cols): the sums of squares of x's columns are added
  const Real* other = nullptr;  // as x, which is not bf16 then; or null. A row of zeros makes the sum NaN
  TensorStats stats = {};
  double cosines = 0;
};

// Measures tensors of equally many rows in one parallel loop.
template <class Real>
void column_stats(std::span<ColumnStats<Real>> tensors);

// out = x*y, element by element, all of one shape and dtype; out may be either.
template <class Real>
void multiply(const Matrix<Real>& x, const Matrix<Real>& y, const Matrix<Real>& out);

// y = f(x) and derivative = f'(x) for the n numbers of a row, by the calling thread; y and derivative of one
// dtype.
template <class Real>
void activation(Activation kind, Index n, const Real* x, const Matrix<Real>& y,
                const Matrix<Real>& derivative);

}  // namespace normscope
