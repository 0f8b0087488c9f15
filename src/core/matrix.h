// A view of a matrix in memory, with the type of its elements.
#pragma once

#include "core/types.h"

namespace normscope {

// bfloat16: the upper half of a float. Kernels convert and multiply it; nothing else reads it.
struct bf16 {
  std::uint16_t bits;
};

enum class DType : std::uint8_t { real, bf16 };  // real: the type of the arithmetic, float or double

// The stride of rows of `cols` columns. Rows of bf16 hold whole pairs, because GEMM reads two steps of k at a
// time; an odd last column is padded with zero.
constexpr Index row_stride(DType dtype, Index cols) {
  return dtype == DType::bf16 ? (cols + 1) / 2 * 2 : cols;
}

// (rows, cols), row-major, rows `ld` elements apart. At most one of the pointers is set; none: no matrix.
template <class Real>
struct Matrix {
  Real* value = nullptr;
  bf16* half = nullptr;
  Index rows = 0, cols = 0, ld = 0;
  bool transposed = false;  // only for GEMM: element (i, j) is at [j*ld + i]

  Matrix() = default;
  Matrix(Real* data, Index n_rows, Index n_cols, Index stride)
      : value(data), rows(n_rows), cols(n_cols), ld(stride) {}
  Matrix(Real* data, Index n_rows, Index n_cols) : Matrix(data, n_rows, n_cols, n_cols) {}
  Matrix(bf16* data, Index n_rows, Index n_cols, Index stride)
      : half(data), rows(n_rows), cols(n_cols), ld(stride) {}
  Matrix(bf16* data, Index n_rows, Index n_cols)
      : Matrix(data, n_rows, n_cols, row_stride(DType::bf16, n_cols)) {}

  DType dtype() const { return half != nullptr ? DType::bf16 : DType::real; }
  Index size() const { return rows * cols; }
  explicit operator bool() const { return value != nullptr || half != nullptr; }

  // The block of n_rows by n_cols at (row, col). Blocks of bf16 begin at even columns.
  Matrix block(Index row, Index col, Index n_rows, Index n_cols) const {
    Matrix part = *this;
    const Index offset = transposed ? col * ld + row : row * ld + col;
    part.value = value != nullptr ? value + offset : nullptr;
    part.half = half != nullptr ? half + offset : nullptr;
    part.rows = n_rows;
    part.cols = n_cols;
    return part;
  }

  Matrix t() const {
    Matrix other = *this;
    other.rows = cols;
    other.cols = rows;
    other.transposed = !transposed;
    return other;
  }
};

// The bytes of a contiguous matrix, and the matrix in such memory.
template <class Real>
constexpr std::size_t matrix_bytes(Index rows, Index cols, DType dtype) {
  const std::size_t element = dtype == DType::bf16 ? sizeof(bf16) : sizeof(Real);
  return static_cast<std::size_t>(rows * row_stride(dtype, cols)) * element;
}
template <class Real>
Matrix<Real> matrix_at(void* memory, Index rows, Index cols, DType dtype) {
  if (dtype == DType::bf16) return {static_cast<bf16*>(memory), rows, cols};
  return {static_cast<Real*>(memory), rows, cols};
}

}  // namespace normscope
