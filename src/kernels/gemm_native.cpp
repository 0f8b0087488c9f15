// The native provider: packs op(B), cuts C into tiles, leaves each tile to the kernel of this instruction
// set.
#include <algorithm>

#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/gemm.h"
#include "kernels/gemm_kernel.h"

namespace normscope {
namespace {

// Numbers of op(B) packed at a time, 2 MiB of float. Half of it packed 3 % slower (more starts of threads,
// more visits of C), and a tile streams through at most depth * most_cols of them, 1 MiB.
constexpr Index packed_numbers = 512 * 1024;

// Up to so many numbers of op(B) are packed by the calling thread: sooner done than threads are started.
constexpr Index packed_alone = 16 * 1024;

// The grid of C. It depends on the shape and the instruction set alone.
struct Grid {
  Index row_tiles, column_tiles;
  Index tile_cols;

  // A tile of one band of register tiles is already efficient, since op(B) is packed once for all of them and
  // read as a stream. So there are tiles enough for 16 threads wherever the shape allows it.
  Grid(Index m, Index n, Index band_rows, Index panel_cols) {
    constexpr Index enough = 32, most_cols = 512, most_bands = 8;
    const Index bands = block_count(m, band_rows);
    const Index panels = block_count(n, panel_cols);
    Index tile_panels = std::min(panels, most_cols / panel_cols);
    while (bands * block_count(panels, tile_panels) < enough && tile_panels > 2) {
      tile_panels = block_count(tile_panels, 2);
    }
    column_tiles = block_count(panels, tile_panels);
    tile_cols = block_count(panels, column_tiles) * panel_cols;
    const Index tile_bands = std::clamp<Index>(bands * column_tiles / enough, 1, most_bands);
    row_tiles = block_count(bands, tile_bands);
  }
};

// Packing of few numbers is sooner done than threads are started; inside a parallel loop, it is the calling
// thread's alone anyway.
template <class Body>
void each_piece(Index numbers, Index pieces, Body&& body) {
  if (numbers > packed_alone) return parallel_each(pieces, body);
  for (Index i = 0; i < pieces; ++i) body(i);
}

// Packs op(B), k steps by n columns, whose first element is at b.
template <class Real>
RightOperand<Real> packed(const GemmKernel<Real>& kernel, bool transposed, Index k, Index n, const Real* b,
                          Index ldb, Real* room) {
  const Index stored = block_count(k, kernel.steps);
  const Index panels = block_count(n, kernel.cols), runs = block_count(stored, kernel.depth);
  const Index panel_size = stored * kernel.cols;
  each_piece(k * n, panels * runs, [&](Index piece) {
    const Index panel = piece / runs, j = panel * kernel.cols;
    const Index p = piece % runs * kernel.depth * kernel.steps;
    kernel.pack_panel(transposed, std::min(kernel.depth * kernel.steps, k - p), std::min(kernel.cols, n - j),
                      b + (transposed ? j * ldb + p : p * ldb + j), ldb,
                      room + panel * panel_size + p / kernel.steps * kernel.cols);
  });
  return {room, kernel.cols, panel_size};
}

// Where panels lie side by side in B itself.
template <class Real>
bool lies_in_panels(const GemmKernel<Real>& kernel, bool transposed, Index n) {
  return kernel.steps == 1 && !transposed && n % kernel.cols == 0;
}

// Whole lines, and an odd number of them: rows of op(A) start in the sets of a cache in turn.
template <class Real>
Index left_stride(const GemmKernel<Real>& kernel, bool transposed, Index m, Index k) {
  constexpr Index line = 64 / static_cast<Index>(sizeof(Real));
  return (block_count(transposed ? m : block_count(k, kernel.steps), line) | 1) * line;
}

}  // namespace

template <class Real>
Index packed_size(const GemmKernel<Real>& kernel, Index k, Index n) {
  return block_count(k, kernel.steps) * block_count(n, kernel.cols) * kernel.cols;
}

template <class Real>
RightOperand<Real> right_operand(const GemmKernel<Real>& kernel, bool transposed, Index k, Index n,
                                 const Real* b, Index ldb, Real* room) {
  if (lies_in_panels(kernel, transposed, n)) return {b, ldb, kernel.cols};
  return packed(kernel, transposed, k, n, b, ldb, room);
}

template <class Real>
Index left_size(const GemmKernel<Real>& kernel, bool transposed, Index m, Index k) {
  return (transposed ? block_count(k, kernel.steps) : m) * left_stride(kernel, transposed, m, k);
}

template <class Real>
LeftOperand<Real> left_operand(const GemmKernel<Real>& kernel, bool transposed, Index m, Index k,
                               const Real* a, Index lda, Real* room) {
  if (kernel.pack_left == nullptr) return {a, lda, transposed};
  constexpr Index rows_a_block = 64;
  const Index stride = left_stride(kernel, transposed, m, k);
  each_piece(m * k, block_count(m, rows_a_block), [&](Index block) {
    const Index i = block * rows_a_block;
    kernel.pack_left(transposed, std::min(rows_a_block, m - i), k, a + (transposed ? i : i * lda), lda,
                     room + (transposed ? i : i * stride), stride);
  });
  return {room, stride, transposed};
}

// As many stored numbers of k at a time as the kernel takes.
template <class Real>
void multiply(const GemmKernel<Real>& kernel, Index m, Index n, Index k, const LeftOperand<Real>& a,
              const RightOperand<Real>& b, const TileOutput<Real>& out) {
  const Index stored = block_count(k, kernel.steps);
  for (Index p = 0; p < stored; p += kernel.depth) {
    kernel.multiply(m, n, std::min(kernel.depth, stored - p),
                    {a.data + (a.transposed ? p * a.stride : p), a.stride, a.transposed},
                    {b.data + p * b.stride, b.stride, b.panel_size},
                    {out.alpha, p == 0 ? out.beta : Real(1), out.c, out.ldc});
  }
}

template <class Real>
void gemm_native(const GemmKernel<Real>& kernel, const Gemm<Real>& g) {
  const bool transpose_a = g.trans_a == Transpose::yes, transpose_b = g.trans_b == Transpose::yes;
  const Grid grid(g.m, g.n, kernel.rows, kernel.cols);
  const Index panels = block_count(g.n, kernel.cols);
  const Index steps_at_once = std::max<Index>(1, packed_numbers / (panels * kernel.cols * kernel.depth)) *
                              kernel.depth * kernel.steps;

  for (Index k0 = 0; k0 < g.k; k0 += steps_at_once) {
    const Index steps = std::min(g.k - k0, steps_at_once);
    const Real* b_start = g.b + (transpose_b ? k0 : k0 * g.ldb);
    struct PackedRight;
    struct PackedLeft;
    const RightOperand<Real> b = packed(kernel, transpose_b, steps, g.n, b_start, g.ldb,
                                        thread_scratch<Real, PackedRight>(packed_size(kernel, steps, g.n)));
    const LeftOperand<Real> a =
        left_operand(kernel, transpose_a, g.m, steps, g.a + (transpose_a ? k0 * g.lda : k0), g.lda,
                     thread_scratch<Real, PackedLeft>(left_size(kernel, transpose_a, g.m, steps)));

    parallel_each(grid.row_tiles * grid.column_tiles, [&](Index tile) {
      const Index row_tile = tile / grid.column_tiles;
      const Index i = g.m * row_tile / grid.row_tiles, rows = g.m * (row_tile + 1) / grid.row_tiles - i;
      const Index j = tile % grid.column_tiles * grid.tile_cols;
      const Index cols = std::min(grid.tile_cols, g.n - j);
      multiply<Real>(kernel, rows, cols, steps,
                     {a.data + (transpose_a ? i : i * a.stride), a.stride, transpose_a},
                     {b.data + j / kernel.cols * b.panel_size, b.stride, b.panel_size},
                     {g.alpha, k0 == 0 ? g.beta : Real(1), g.c + i * g.ldc + j, g.ldc});
      if (k0 + steps == g.k) finish_tile(g, i, j, rows, cols);
    });
  }
}

template Index packed_size(const GemmKernel<float>&, Index, Index);
template Index packed_size(const GemmKernel<double>&, Index, Index);
template RightOperand<float> right_operand(const GemmKernel<float>&, bool, Index, Index, const float*, Index,
                                           float*);
template RightOperand<double> right_operand(const GemmKernel<double>&, bool, Index, Index, const double*,
                                            Index, double*);
template Index left_size(const GemmKernel<float>&, bool, Index, Index);
template Index left_size(const GemmKernel<double>&, bool, Index, Index);
template LeftOperand<float> left_operand(const GemmKernel<float>&, bool, Index, Index, const float*, Index,
                                         float*);
template LeftOperand<double> left_operand(const GemmKernel<double>&, bool, Index, Index, const double*, Index,
                                          double*);
template void multiply(const GemmKernel<float>&, Index, Index, Index, const LeftOperand<float>&,
                       const RightOperand<float>&, const TileOutput<float>&);
template void multiply(const GemmKernel<double>&, Index, Index, Index, const LeftOperand<double>&,
                       const RightOperand<double>&, const TileOutput<double>&);
template void gemm_native(const GemmKernel<float>&, const Gemm<float>&);
template void gemm_native(const GemmKernel<double>&, const Gemm<double>&);

}  // namespace normscope
