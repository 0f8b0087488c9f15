#include "kernels/bf16.h"

#include <algorithm>

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
  parallel_blocks(x.rows, rows_per_block, [&](Index begin, Index end) {
    const Index rows = end - begin;
    bf16_kernels().to_bf16(x.block(begin, 0, rows, x.cols), out.block(begin, 0, rows, x.cols));
  });
}
void to_bf16(const Matrix<double>&, const Matrix<double>&) {
  fail("bf16", "numbers in double are not rounded to bf16");
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
    struct Dense;
    float* dense = thread_scratch<float, Dense>(x.size());
    to_float(x, dense);
    return tensor_stats(x.size(), dense);
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
void column_stats(std::span<ColumnStats<Real>> tensors) {
  struct Partial {
    TensorStats stats;
    double cosines;
  };
  struct Partials;
  struct Columns;
  struct Widened;
  constexpr Index rows_at_once = 16, block = 8 * rows_at_once;
  const Index count = std::ssize(tensors), rows = count > 0 ? tensors[0].x.rows : 0;
  const Index blocks = block_count(rows, block);
  Index width = 0;
  for (const ColumnStats<Real>& tensor : tensors) width += tensor.x.cols;
  Partial* partials = thread_scratch<Partial, Partials>(blocks * count);
  double* columns = thread_scratch<double, Columns>(blocks * width);

  const auto of_rows = [&](Index begin, Index end, const ColumnStats<Real>& tensor, double* squares) {
    const Matrix<Real>& x = tensor.x;
    Partial sum{};
    std::fill_n(squares, x.cols, 0.0);
    if (x.half == nullptr)
      sum.stats = kernels<Real>().column_stats(end - begin, x.cols, x.value + begin * x.ld, squares);
    for (Index row = begin; x.half != nullptr && row < end; row += rows_at_once) {
      const Matrix<Real> some = x.block(row, 0, std::min(rows_at_once, end - row), x.cols);
      Real* widened = thread_scratch<Real, Widened>(some.size());
      to_float(some, widened);
      sum.stats += kernels<Real>().column_stats(some.rows, x.cols, widened, squares);
    }
    if (tensor.other != nullptr)
      sum.cosines = kernels<Real>().sum_cosines(end - begin, x.cols, tensor.other + begin * x.cols,
                                                x.value + begin * x.cols);
    return sum;
  };
  parallel_blocks(rows, block, [&](Index begin, Index end) {
    Partial* partial = partials + begin / block * count;
    double* squares = columns + begin / block * width;
    for (const ColumnStats<Real>& tensor : tensors) {
      *partial++ = of_rows(begin, end, tensor, squares);
      squares += tensor.x.cols;
    }
  });
  for (Index b = 0; b < blocks; ++b) {
    for (ColumnStats<Real>& tensor : tensors) {
      tensor.stats += partials->stats;
      tensor.cosines += partials++->cosines;
      for (Index i = 0; i < tensor.x.cols; ++i) tensor.squares[i] += *columns++;
    }
  }
}
template void column_stats(std::span<ColumnStats<float>>);
template void column_stats(std::span<ColumnStats<double>>);

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
void activation(Activation kind, Index n, const float* x, const Matrix<float>& y,
                const Matrix<float>& derivative) {
  y.half != nullptr ? bf16_kernels().activate(kind, n, x, y.half, derivative.half)
                    : activation(kind, n, x, y.value, derivative.value);
}
template <>
void activation(Activation kind, Index n, const double* x, const Matrix<double>& y,
                const Matrix<double>& derivative) {
  activation(kind, n, x, y.value, derivative.value);
}

}  // namespace normscope
