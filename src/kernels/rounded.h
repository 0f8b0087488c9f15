// Matrices rounded to bf16, as products of bf16 read them. What only products read may be kept so: half the
// memory, and not a bit of the products changes, since they would round the same numbers themselves.
//
// Two columns share a word of the size of a float, the earlier in the low half; a missing last one is zero.
// The words are kept as the bits of floats: moved, never computed with. Products of double are not rounded.
#pragma once

#include <type_traits>

#include "core/parallel.h"
#include "kernels/gemm.h"
#include "kernels/pointwise.h"

namespace normscope {

// Whether products by `provider` round their operands.
template <class Real>
constexpr bool rounds(GemmProvider provider) {
  return std::is_same_v<Real, float> && provider == GemmProvider::bf16;
}

// Words a row.
inline Index rounded_cols(Index cols) { return block_count(cols, 2); }

// x (rows, cols), rounded to the nearest, ties to even: (rows, rounded_cols(cols)).
template <class Real>
void round_rows(Index rows, Index cols, const Real* x, Real* rounded);

// The same by the calling thread, for rows that it has just made.
template <class Real>
void round_block(Index rows, Index cols, const Real* x, Real* rounded);

// The same numbers as floats again.
template <class Real>
void widen_rows(Index rows, Index cols, const Real* rounded, Real* out);

// The same in scratch of the calling thread, until its next call.
template <class Real>
const Real* widened(Index rows, Index cols, const Real* rounded);

// A matrix as it is kept: (rows, cols), row-major, as it is or rounded.
template <class Real>
struct StoredMatrix {
  const Real* data;
  Index rows, cols;
  bool rounded = false;

  Index size() const { return rows * cols; }
  // As floats: in scratch, as widened() says, where they are rounded.
  const Real* numbers() const { return rounded ? widened(rows, cols, data) : data; }
};

// Of its numbers; a rounded one is not widened as a whole.
template <class Real>
TensorStats tensor_stats(const StoredMatrix<Real>& x);

// out = x*y, element by element, of so many words; out may be either.
template <class Real>
void multiply_rounded(Index words, const Real* x, const Real* y, Real* out);

}  // namespace normscope
