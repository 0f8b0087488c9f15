#include "kernels/bf16.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/reduce.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index rows_per_block = 64;

// Calls body(row) for each row.
template <class Body>
void for_each_row(Index rows, Body&& body) {
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) body(i);
  });
}

}  // namespace

void to_bf16(const Matrix<float>& x, const Matrix<float>& out) {
  for_each_row(x.rows,
               [&](Index i) { bf16_kernels().to_bf16(x.cols, x.value + i * x.ld, out.half + i * out.ld); });
}
void to_bf16(const Matrix<double>&, const Matrix<double>&) {
  refuse("bf16", "numbers in double are not rounded to bf16");
}

template <>
void to_float(const Matrix<float>& x, float* out) {
  for_each_row(x.rows, [&](Index i) {
    float* row = out + i * x.cols;
    x.half != nullptr ? bf16_kernels().to_float(x.cols, x.half + i * x.ld, row)
                      : static_cast<void>(std::copy_n(x.value + i * x.ld, x.cols, row));
  });
}
template <>
void to_float(const Matrix<double>& x, double* out) {
  for_each_row(x.rows, [&](Index i) { std::copy_n(x.value + i * x.ld, x.cols, out + i * x.cols); });
}

template <>
TensorStats tensor_stats(const Matrix<float>& x) {
  if (x.half == nullptr) return tensor_stats(x.size(), x.value);
  if (x.ld != x.cols) {
    std::vector<float> dense(static_cast<std::size_t>(x.size()));
    to_float(x, dense.data());
    return tensor_stats(x.size(), dense.data());
  }
  return sum_over_blocks<TensorStats>(x.size(), [&](Index begin, Index count) {
    constexpr Index piece = 2048;  // stays in the first cache
    alignas(64) float numbers[piece];
    TensorStats sum;
    for (Index i = 0; i < count; i += piece) {
      const Index some = std::min(piece, count - i);
      bf16_kernels().to_float(some, x.half + begin + i, numbers);
      sum += kernels<float>().tensor_stats(some, numbers);
    }
    return sum;
  });
}
template <>
TensorStats tensor_stats(const Matrix<double>& x) {
  return tensor_stats(x.size(), x.value);
}

// A block's rows of bf16 are widened a few at a time, which stay in the first cache.
template <class Real>
TensorStats column_stats(const Matrix<Real>& x, double* squares) {
  struct Blocks;
  struct Columns;
  struct Widened;
  constexpr Index rows_at_once = 16, block = 8 * rows_at_once;
  const Index blocks = block_count(x.rows, block);
  TensorStats* stats = thread_scratch<TensorStats, Blocks>(blocks);
  double* columns = thread_scratch<double, Columns>(blocks * x.cols);
  parallel_blocks(x.rows, block, [&](Index begin, Index end) {
    double* mine = columns + begin / block * x.cols;
    TensorStats sum;
    std::fill_n(mine, x.cols, 0.0);
    if (x.half == nullptr)
      sum = kernels<Real>().column_stats(end - begin, x.cols, x.value + begin * x.ld, mine);
    for (Index row = begin; x.half != nullptr && row < end; row += rows_at_once) {
      const Matrix<Real> rows = x.block(row, 0, std::min(rows_at_once, end - row), x.cols);
      Real* widened = thread_scratch<Real, Widened>(rows.size());
      to_float(rows, widened);
      sum += kernels<Real>().column_stats(rows.rows, x.cols, widened, mine);
    }
    stats[begin / block] = sum;
  });
  TensorStats total;
  for (Index b = 0; b < blocks; ++b) {
    total += stats[b];
    axpby(x.cols, 1.0, columns + b * x.cols, 1.0, squares);
  }
  return total;
}
template TensorStats column_stats(const Matrix<float>&, double*);
template TensorStats column_stats(const Matrix<double>&, double*);

template <>
void multiply(const Matrix<float>& x, const Matrix<float>& y, const Matrix<float>& out) {
  if (x.half == nullptr) return multiply(x.size(), x.value, y.value, out.value);
  parallel_blocks(x.rows * x.ld, 2 * elements_per_block, [&](Index begin, Index end) {
    bf16_kernels().multiply(end - begin, x.half + begin, y.half + begin, out.half + begin);
  });
}
template <>
void multiply(const Matrix<double>& x, const Matrix<double>& y, const Matrix<double>& out) {
  multiply(x.size(), x.value, y.value, out.value);
}

template <>
void activation(ActivationKind kind, Index n, const float* x, const Matrix<float>& y,
                const Matrix<float>& derivative) {
  y.half != nullptr ? bf16_kernels().activate(kind, n, x, y.half, derivative.half)
                    : activation(kind, n, x, y.value, derivative.value);
}
template <>
void activation(ActivationKind kind, Index n, const double* x, const Matrix<double>& y,
                const Matrix<double>& derivative) {
  activation(kind, n, x, y.value, derivative.value);
}

}  // namespace normscope
