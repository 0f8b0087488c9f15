#include "kernels/rounded.h"

#include <algorithm>

#include "core/scratch.h"
#include "kernels/reduce.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index rows_per_block = 64;

}  // namespace

template <class Real>
void round_block(Index rows, Index cols, const Real* x, Real* rounded) {
  bf16_kernel<Real>().pack_left(rows, cols, {x, cols}, rounded, rounded_cols(cols));
}

template <class Real>
void round_rows(Index rows, Index cols, const Real* x, Real* rounded) {
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    round_block(end - begin, cols, x + begin * cols, rounded + begin * rounded_cols(cols));
  });
}

template <class Real>
void widen_rows(Index rows, Index cols, const Real* rounded, Real* out) {
  const Index words = rounded_cols(cols);
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) bf16_kernel<Real>().widen(cols, rounded + i * words, out + i * cols);
  });
}

template <class Real>
const Real* widened(Index rows, Index cols, const Real* rounded) {
  struct Widened;
  Real* out = thread_scratch<Real, Widened>(rows * cols);
  widen_rows(rows, cols, rounded, out);
  return out;
}

template <class Real>
TensorStats tensor_stats(const StoredMatrix<Real>& x) {
  // Rows of an odd number of columns end in half a word.
  if (!x.rounded || x.cols % 2 != 0) return tensor_stats(x.size(), x.numbers());
  return sum_over_blocks<TensorStats>(x.size(), [&](Index begin, Index count) {
    constexpr Index piece = 2048;  // stays in the first cache
    alignas(64) Real numbers[piece];
    TensorStats sum;
    for (Index i = 0; i < count; i += piece) {
      const Index some = std::min(piece, count - i);
      bf16_kernel<Real>().widen(some, x.data + (begin + i) / 2, numbers);
      sum += simd<Real>().tensor_stats(some, numbers);
    }
    return sum;
  });
}

template <class Real>
void multiply_rounded(Index words, const Real* x, const Real* y, Real* out) {
  parallel_blocks(words, elements_per_block, [&](Index begin, Index end) {
    bf16_kernel<Real>().multiply_rounded(end - begin, x + begin, y + begin, out + begin);
  });
}

template void round_block(Index, Index, const float*, float*);
template void round_block(Index, Index, const double*, double*);
template void round_rows(Index, Index, const float*, float*);
template void round_rows(Index, Index, const double*, double*);
template void widen_rows(Index, Index, const float*, float*);
template void widen_rows(Index, Index, const double*, double*);
template const float* widened(Index, Index, const float*);
template const double* widened(Index, Index, const double*);
template TensorStats tensor_stats(const StoredMatrix<float>&);
template TensorStats tensor_stats(const StoredMatrix<double>&);
template void multiply_rounded(Index, const float*, const float*, float*);
template void multiply_rounded(Index, const double*, const double*, double*);

}  // namespace normscope
