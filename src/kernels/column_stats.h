// Statistics of several tensors at once, with sums of squares by column.
#pragma once

#include <span>

#include "core/matrix.h"
#include "kernels/pointwise.h"

namespace normscope {

// A tensor (rows, cols), dense, and its measured statistics: those of all its elements, sums of squares by
// column, and the sum over rows of the cosine between its row and that of `other`.
template <class Real>
struct ColumnStats {
  Matrix<Real> x;
  double* squares;              // (cols): the sums of squares of x's columns are added
  const Real* other = nullptr;  // as x; or null. A row of zeros makes the sum NaN
  TensorStats stats = {};
  double cosines = 0;
};

// Measures tensors of equally many rows in one parallel loop.
template <class Real>
void column_stats(std::span<ColumnStats<Real>> tensors);

}  // namespace normscope
