#include "kernels/column_stats.h"

#include <algorithm>

#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/simd.h"

namespace normscope {

template <class Real>
void column_stats(std::span<ColumnStats<Real>> tensors) {
  struct Partial {
    TensorStats stats;
    double cosines;
  };
  struct Partials;
  struct Columns;
  constexpr Index block = 128;
  const Index count = std::ssize(tensors), rows = count > 0 ? tensors[0].x.rows : 0;
  const Index blocks = block_count(rows, block);
  Index width = 0;
  for (const ColumnStats<Real>& tensor : tensors) width += tensor.x.cols;
  Partial* partials = thread_scratch<Partial, Partials>(blocks * count);
  double* columns = thread_scratch<double, Columns>(blocks * width);

  parallel_blocks(rows, block, [&](Index begin, Index end) {
    Partial* partial = partials + begin / block * count;
    double* squares = columns + begin / block * width;
    for (const ColumnStats<Real>& tensor : tensors) {
      const Index cols = tensor.x.cols;
      const Real* x = tensor.x.data + begin * cols;
      std::fill_n(squares, cols, 0.0);
      partial->stats = kernels<Real>().column_stats(end - begin, cols, x, squares);
      partial->cosines = tensor.other == nullptr
                             ? 0
                             : kernels<Real>().sum_cosines(end - begin, cols, tensor.other + begin * cols, x);
      ++partial;
      squares += cols;
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

}  // namespace normscope
