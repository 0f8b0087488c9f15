// The native provider: packs op(B), cuts C into tiles, leaves each tile to the kernel of this instruction
// set.
#include <algorithm>

#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/gemm.h"
#include "kernels/gemm_kernel.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// Numbers of op(B) packed at a time, 2 MiB of float. Half of it packed 3 % slower (more starts of threads,
// more visits of C), and a tile streams through at most depth * max_cols of them, 1 MiB.
constexpr Index packed_numbers = 512 * 1024;

// Up to so many numbers of op(B) are packed by the calling thread: sooner done than threads are started.
constexpr Index packed_alone = 16 * 1024;

// Each thread packs so many numbers of op(B) for itself, 512 KiB of float, if it has so many rows of C to use
// them for: none waits for another's, nor writes where another has read (4 % of a step with two threads at
// L 24 in float32, 6 % where they share no L3 cache).
constexpr Index packed_by_each = 128 * 1024, rows_of_each = 256;

// The grid of C. It depends on the shape and the instruction set alone.
struct Grid {
  Index row_tiles, column_tiles;
  Index tile_cols;

  // A tile of one band of register tiles is already efficient, since op(B) is packed once for all of them and
  // read as a stream. So there are tiles enough for 16 threads wherever the shape allows it.
  Grid(Index m, Index n, Index band_rows, Index panel_cols, Index panel_numbers) {
    constexpr Index enough = 32, max_cols = 512, max_bands = 8;
    // Panels that many bands read take half of the L2 cache at most, 512 KiB of float: 2.6 % of the widest dW
    // at C 384. For few bands it is not worth copying A more often.
    constexpr Index many_bands = 16, max_numbers = 128 * 1024;
    const Index bands = block_count(m, band_rows);
    const Index panels = block_count(n, panel_cols);
    Index tile_panels = std::min(panels, max_cols / panel_cols);
    if (bands > many_bands) tile_panels = std::clamp<Index>(max_numbers / panel_numbers, 1, tile_panels);
    while (bands * block_count(panels, tile_panels) < enough && tile_panels > 2) {
      tile_panels = block_count(tile_panels, 2);
    }
    column_tiles = block_count(panels, tile_panels);
    tile_cols = block_count(panels, column_tiles) * panel_cols;
    const Index tile_bands = std::clamp<Index>(bands * column_tiles / enough, 1, max_bands);
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

// Packs op(B), k steps by n columns.
template <class Real>
RightOperand<Real> packed(const GemmKernel<Real>& kernel, Index k, Index n, const Operand<Real>& b,
                          Real* room) {
  const Index stored = block_count(k, kernel.steps);
  const Index panels = block_count(n, kernel.cols), runs = block_count(stored, kernel.depth);
  const Index panel_size = stored * kernel.cols;
  each_piece(k * n, panels * runs, [&](Index piece) {
    const Index panel = piece / runs, j = panel * kernel.cols;
    const Index p = piece % runs * kernel.steps_a_run();
    kernel.pack_panel(std::min(kernel.steps_a_run(), k - p), std::min(kernel.cols, n - j), b.from(p, j),
                      room + panel * panel_size + p / kernel.steps * kernel.cols);
  });
  return {room, kernel.cols, panel_size};
}

// Where panels lie side by side in B itself.
template <class Real>
bool lies_in_panels(const GemmKernel<Real>& kernel, const Operand<Real>& b, Index n) {
  return kernel.steps == 1 && !b.transposed && n % kernel.cols == 0;
}

template <class Real>
bool is_read_in_place(const GemmKernel<Real>& kernel, const Operand<Real>& a) {
  return kernel.pack_left == nullptr || (a.rounded && !a.transposed);
}

template <class Real>
Index left_stride(const GemmKernel<Real>& kernel, Index m, Index k, bool transposed) {
  return scratch_stride<Real>(transposed ? m : block_count(k, kernel.steps));
}

// Whether threads may take runs of k instead of tiles of C. The bits are the same, as C takes the runs' sums
// in the order in which one thread would add them (with alpha = 1: else they would be rounded once more).
//
// It is for dW, whose terms are rows: a thread then packs and reads rows of its own. To write to a cache line
// that another core has read takes 6 to 8 ns instead of 0.8, and more where the two share no L3 cache: there
// a step with two threads at L 24, C 128 took 228 ms in bf16 and takes 202. Not where the sums take more room
// than packed operands.
template <class Real>
bool may_split_runs(const Gemm<Real>& g, Index runs) {
  return g.trans_a == Transpose::yes && g.alpha == Real(1) && !g.rounded.c && g.epilogue.empty() &&
         (runs - 1) * g.m * g.n <= packed_numbers;
}

// The kernel with runs for this shape: the longest, or an even number of equal ones that threads may take.
template <class Real>
GemmKernel<Real> with_runs_for(const Gemm<Real>& g, GemmKernel<Real> kernel) {
  constexpr Index min_steps = 128;  // a shorter run does not repay its visit of C
  const Index runs = 2 * block_count(g.k, 2 * kernel.steps_a_run());
  if (g.k >= runs * min_steps && may_split_runs(g, runs)) {
    kernel.depth = block_count(g.k, runs * kernel.steps);
  }
  return kernel;
}

}  // namespace

template <class Real>
Index packed_size(const GemmKernel<Real>& kernel, Index k, Index n) {
  return block_count(k, kernel.steps) * block_count(n, kernel.cols) * kernel.cols;
}

template <class Real>
RightOperand<Real> right_operand(const GemmKernel<Real>& kernel, Index k, Index n, const Operand<Real>& b,
                                 Real* room) {
  if (lies_in_panels(kernel, b, n)) return {b.data, b.ld, kernel.cols};
  return packed(kernel, k, n, b, room);
}

template <class Real>
Index left_size(const GemmKernel<Real>& kernel, Index m, Index k, const Operand<Real>& a) {
  if (is_read_in_place(kernel, a)) return 0;
  return (a.transposed ? block_count(k, kernel.steps) : m) * left_stride(kernel, m, k, a.transposed);
}

template <class Real>
LeftOperand<Real> left_operand(const GemmKernel<Real>& kernel, Index m, Index k, const Operand<Real>& a,
                               Real* room) {
  if (is_read_in_place(kernel, a)) return {a.data, a.ld, a.transposed};
  constexpr Index rows_per_block = 64;
  const Index stride = left_stride(kernel, m, k, a.transposed);
  // In the order of memory: each piece takes whole rows of A, of a transposed one some steps of k.
  each_piece(m * k, block_count(a.transposed ? k : m, rows_per_block), [&](Index block) {
    const Index row = block * rows_per_block;
    if (a.transposed) {
      kernel.pack_left(m, std::min(rows_per_block, k - row), a.from(0, row),
                       room + row / kernel.steps * stride, stride);
    } else {
      kernel.pack_left(std::min(rows_per_block, m - row), k, a.from(row, 0), room + row * stride, stride);
    }
  });
  return {room, stride, a.transposed};
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
                    {out.alpha, p == 0 ? out.beta : Real(1), out.c, out.ldc, out.rounded});
  }
}

namespace {

template <class Real>
void multiply_tiles(const GemmKernel<Real>& kernel, const Gemm<Real>& g) {
  const Operand<Real> whole_a = g.operand_a(), whole_b = g.operand_b();
  const Index panel_numbers = std::min(kernel.depth, block_count(g.k, kernel.steps)) * kernel.cols;
  const Grid grid(g.m, g.n, kernel.rows, kernel.cols, panel_numbers);
  const Index panels = block_count(g.n, kernel.cols);
  // Sums that are to be rounded are not put down in between.
  const Index steps_at_once =
      g.rounded.c
          ? g.k
          : std::max<Index>(1, packed_numbers / (panels * kernel.cols * kernel.depth)) * kernel.steps_a_run();

  // What a register tile can round by itself.
  const bool rounded_by_tiles =
      g.rounded.c && g.epilogue.empty() && block_count(g.k, kernel.steps) <= kernel.depth;

  for (Index k0 = 0; k0 < g.k; k0 += steps_at_once) {
    const Index steps = std::min(g.k - k0, steps_at_once);
    struct PackedRight;
    struct PackedLeft;
    const Index right_size = packed_size(kernel, steps, g.n);
    const auto pack_right = [&] {
      return packed(kernel, steps, g.n, whole_b.from(k0, 0), thread_scratch<Real, PackedRight>(right_size));
    };
    const bool by_each = right_size <= packed_by_each && g.m >= rows_of_each * thread_count();
    const RightOperand<Real> shared = by_each ? RightOperand<Real>{} : pack_right();
    const Operand<Real> a_part = whole_a.from(0, k0);
    const LeftOperand<Real> a = left_operand(
        kernel, g.m, steps, a_part, thread_scratch<Real, PackedLeft>(left_size(kernel, g.m, steps, a_part)));

    const auto right = [&] { return by_each ? pack_right() : shared; };
    parallel_each(grid.row_tiles * grid.column_tiles, right, [&](Index tile, const RightOperand<Real>& b) {
      const Index row_tile = tile / grid.column_tiles;
      const Index i = g.m * row_tile / grid.row_tiles, rows = g.m * (row_tile + 1) / grid.row_tiles - i;
      const Index j = tile % grid.column_tiles * grid.tile_cols;
      const Index cols = std::min(grid.tile_cols, g.n - j);
      struct Sums;
      TileOutput<Real> out{g.alpha, k0 == 0 ? g.beta : Real(1), g.c, g.ldc, rounded_by_tiles};
      if (g.rounded.c && !rounded_by_tiles) {
        out.ldc = scratch_stride<Real>(grid.tile_cols);
        out.c = thread_scratch<Real, Sums>(rows * out.ldc);
      } else {
        out.c = out.at(i, j);
      }
      multiply<Real>(kernel, rows, cols, steps,
                     {a.data + (a.transposed ? i : i * a.stride), a.stride, a.transposed},
                     {b.data + j / kernel.cols * b.panel_size, b.stride, b.panel_size}, out);
      if (k0 + steps == g.k && !rounded_by_tiles) apply_epilogue(g, i, j, rows, cols, out.c, out.ldc);
    });
  }
}

// The sums of the first run go to C itself, the others to room of their own until all are done.
template <class Real>
void multiply_runs(const GemmKernel<Real>& kernel, const Gemm<Real>& g) {
  const Index steps = kernel.steps_a_run(), runs = block_count(g.k, steps);
  const Index stride = scratch_stride<Real>(g.n);
  struct Sums;
  Real* sums = thread_scratch<Real, Sums>((runs - 1) * g.m * stride);
  const auto sums_of = [=](Index run, Index row) { return sums + ((run - 1) * g.m + row) * stride; };

  parallel_each(runs, [&](Index run) {
    Gemm<Real> part = g;
    part.k = std::min(steps, g.k - run * steps);
    part.a = g.operand_a().from(0, run * steps).data;
    part.b = g.operand_b().from(run * steps, 0).data;
    if (run > 0) {
      part.beta = 0;
      part.c = sums_of(run, 0);
      part.ldc = stride;
    }
    multiply_tiles(kernel, part);
  });

  constexpr Index rows_per_block = 16;
  parallel_blocks(g.m, rows_per_block, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      for (Index run = 1; run < runs; ++run) {
        simd<Real>().axpby(g.n, Real(1), sums_of(run, i), Real(1), g.c + i * g.ldc);
      }
    }
  });
}

}  // namespace

template <class Real>
void gemm_native(const GemmKernel<Real>& any, const Gemm<Real>& g) {
  const GemmKernel<Real> kernel = with_runs_for(g, any);
  const Index runs = block_count(g.k, kernel.steps_a_run());
  const bool shared_evenly = thread_count() > 1 && !omp_in_parallel() && runs % thread_count() == 0;
  if (shared_evenly && may_split_runs(g, runs)) return multiply_runs(kernel, g);
  multiply_tiles(kernel, g);
}

template Index packed_size(const GemmKernel<float>&, Index, Index);
template Index packed_size(const GemmKernel<double>&, Index, Index);
template RightOperand<float> right_operand(const GemmKernel<float>&, Index, Index, const Operand<float>&,
                                           float*);
template RightOperand<double> right_operand(const GemmKernel<double>&, Index, Index, const Operand<double>&,
                                            double*);
template Index left_size(const GemmKernel<float>&, Index, Index, const Operand<float>&);
template Index left_size(const GemmKernel<double>&, Index, Index, const Operand<double>&);
template LeftOperand<float> left_operand(const GemmKernel<float>&, Index, Index, const Operand<float>&,
                                         float*);
template LeftOperand<double> left_operand(const GemmKernel<double>&, Index, Index, const Operand<double>&,
                                          double*);
template void multiply(const GemmKernel<float>&, Index, Index, Index, const LeftOperand<float>&,
                       const RightOperand<float>&, const TileOutput<float>&);
template void multiply(const GemmKernel<double>&, Index, Index, Index, const LeftOperand<double>&,
                       const RightOperand<double>&, const TileOutput<double>&);
template void gemm_native(const GemmKernel<float>&, const Gemm<float>&);
template void gemm_native(const GemmKernel<double>&, const Gemm<double>&);

}  // namespace normscope
