// The native provider: packs B, cuts C into tiles, and calls the macro-kernel of this instruction set for
// each. Measurements behind the constants: kernels/NOTES.md.
#include "kernels/gemm/schedule.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// The most numbers in the partial C's of split-K: 2 MiB of float.
constexpr Index split_max = 512 * 1024;

// Smaller operands are packed by the calling thread: starting threads would take longer.
constexpr Index serial_pack_max = 16 * 1024;

// Each thread packs its own B if B has at most 512 KiB and the thread has at least 256 rows of C: one
// parallel loop instead of two, and no cache line that another core has written.
constexpr Index pack_per_thread_max = 128 * 1024, min_rows_per_pack = 256;

// The least number of tiles that C should be cut into, so that threads share the work evenly.
Index tiles_wanted() { return in_parallel_loop() ? 1 : 4 * thread_count(); }

// The cut of C into tiles. No bit depends on it.
struct Grid {
  Index row_tiles, column_tiles;
  Index tile_cols;

  Index tiles() const { return row_tiles * column_tiles; }
};

// Tiles may be as small as one band, because B is packed once for all of them. So C is cut into at least
// `wanted` tiles if the shape allows it, and the threads finish together. Example: with MR 14 and NR 32, C
// (256, 128) has 19 bands and 4 panels; if 8 tiles are wanted, it is cut into 10 of about 2 bands and all 4
// panels each. A transposed A is copied by each tile (macro_kernel()), so its tiles are as wide as C; and
// as each of them reads all of B, they are half as many.
template <class Element>
Grid choose_grid(const GemmKernel<Element>& kernel, const Gemm<float>& g) {
  constexpr Index max_rows = 112, max_cols = 512;
  const Index wanted = tiles_wanted();
  const Index bands = block_count(g.c.rows, kernel.mr), panels = block_count(g.c.cols, kernel.nr);
  Index tile_panels = g.a.transposed ? panels : std::min(panels, max_cols / kernel.nr);
  while (bands * block_count(panels, tile_panels) < wanted && tile_panels > 2) {
    tile_panels = block_count(tile_panels, 2);
  }
  const Index column_tiles = block_count(panels, tile_panels);
  const Index wanted_in_rows = block_count(wanted, column_tiles * (g.a.transposed ? 2 : 1));
  const Index tile_bands = std::clamp<Index>(bands / wanted_in_rows, 1, max_rows / kernel.mr);
  return {block_count(bands, tile_bands), column_tiles, block_count(panels, column_tiles) * kernel.nr};
}

// Call body(piece) for each piece of an operand of `numbers` numbers; in parallel if it is large.
template <class Body>
void for_each_piece(Index numbers, Index pieces, Body&& body) {
  if (numbers > serial_pack_max) return parallel_for(pieces, body);
  for (Index i = 0; i < pieces; ++i) body(i);
}

// The operand A for the macro-kernel, which reads floats in place or copies bands of them.
OperandA<float> prepare_a(const GemmKernel<float>&, const Matrix<float>& a) { return read_in_place(a); }

// A for the micro-kernel: pairs of bf16 are packed in scratch, with room for a last register tile of mr rows.
// A piece is 64 rows of A's memory: 64 rows of A, or 64 steps of k if A is transposed.
OperandA<Bf16Pair> prepare_a(const GemmKernel<Bf16Pair>& kernel, const Matrix<float>& a) {
  constexpr Index rows_per_piece = 64;
  const Index rows = a.transposed ? a.cols : a.rows;
  const bool by_columns = a.transposed && !kernel.packs_a_by_rows;
  const Index pairs = packed_steps<Bf16Pair>(a.cols),
              stride = scratch_stride<Bf16Pair>(by_columns ? a.rows : pairs);
  Bf16Pair* packed =
      thread_scratch<Bf16Pair, struct PackedA>(stride * (by_columns ? pairs : a.rows + kernel.mr));
  for_each_piece(a.size(), block_count(rows, rows_per_piece), [&](Index piece) {
    const Index row = piece * rows_per_piece, count = std::min(rows_per_piece, rows - row);
    if (a.transposed) {
      const Index pair = row / k_pack<Bf16Pair>;
      kernel.pack_a(a.part(0, row, a.rows, count), packed + pair * (by_columns ? stride : 1), stride);
    } else {
      kernel.pack_a(a.part(row, 0, count, a.cols), packed + row * stride, stride);
    }
  });
  return {packed, stride, by_columns};
}

}  // namespace

template <class Element>
OperandB<Element> pack_b(const GemmKernel<Element>& kernel, const Matrix<float>& b, Element* packed) {
  const Index k = b.rows, n = b.cols, steps = kernel.k_block(), k_blocks = block_count(k, steps);
  const OperandB<Element> out{packed, kernel.nr, kernel.padded_steps(k) * kernel.nr};
  for_each_piece(k * n, block_count(n, kernel.nr) * k_blocks, [&](Index piece) {
    const Index panel = piece / k_blocks, j = panel * kernel.nr, p = piece % k_blocks * steps;
    kernel.pack_panel(b.part(p, j, std::min(steps, k - p), std::min(kernel.nr, n - j)),
                      packed + panel * out.panel_size + p / k_pack<Element> * kernel.nr);
  });
  return out;
}

void gemm_in_thread(const GemmKernel<float>& kernel, Index m, Index n, Index k, const OperandA<float>& a,
                    const OperandB<float>& b, const TileOutput& out) {
  kernel.macro_kernel(m, n, std::min(kernel.kc, k), a, b, out);  // a copy of `out` would stall on its stores
  for (Index p = kernel.kc; p < k; p += kernel.kc) {
    TileOutput sums = out;
    sums.beta = 1;
    kernel.macro_kernel(m, n, std::min(kernel.kc, k - p), a.from(0, p), b.from(p, 0), sums);
  }
}

template <class Real>
void apply_epilogue(const Gemm<Real>& g, Index row, Index col, Index rows, Index cols) {
  const Epilogue<Real>& then = g.epilogue;
  if (then.bias == nullptr && !then.derivative) return;
  const KernelTable<Real>& table = kernels<Real>();
  for (Index i = row; i < row + rows; ++i) {
    Real* x = g.c.data + i * g.c.ld + col;
    if (then.bias != nullptr) table.axpby(cols, Real(1), then.bias + col, Real(1), x);
    if (then.derivative) {
      table.activation(then.activation, cols, x, x, then.derivative.data + i * then.derivative.ld + col);
    }
  }
}

namespace {

// A block of KC steps of k of a product, whose B is packed whole; macro_kernel() walks it in chunks that stay in
// the L2 cache.
template <class Element>
struct KBlock {
  const GemmKernel<Element>& kernel;
  const Gemm<float>& product;
  const Grid& grid;
  Index first, steps;  // of k

  Index m() const { return product.c.rows; }
  Index n() const { return product.c.cols; }
  Matrix<float> a() const { return product.a.part(0, first, m(), steps); }
  Matrix<float> b() const { return product.b.part(first, 0, steps, n()); }

  // B for the micro-kernel, in scratch of the calling thread. It is read in place only if several rows of B
  // share a page: otherwise TLB misses dominate.
  OperandB<Element> prepare_b() const {
    if constexpr (std::is_same_v<Element, float>) {
      const bool can_read_in_place = kernel.reads_b_in_place && product.b.ld <= 256;
      if (can_read_in_place) return pack_or_read_in_place<struct TilesB>(kernel, b());
    }
    return pack_b(kernel, b(), thread_scratch<Element, struct TilesB>(packed_size(kernel, b())));
  }

  // Compute a tile of C; with the last block of k its sums are final, and the epilogue follows.
  void compute_tile(Index tile, const OperandA<Element>& a, const OperandB<Element>& b) const {
    const Index row_tile = tile / grid.column_tiles, column_tile = tile % grid.column_tiles;
    const Index i = m() * row_tile / grid.row_tiles, rows = m() * (row_tile + 1) / grid.row_tiles - i;
    const Index j = column_tile * grid.tile_cols, cols = std::min(grid.tile_cols, n() - j);
    kernel.macro_kernel(rows, cols, packed_steps<Element>(steps), a.from(i, 0), b.from(0, j / kernel.nr),
                        {1, first == 0 ? product.beta : 1, product.c.part(i, j, rows, cols)});
    if (first + steps == product.a.cols) apply_epilogue(product, i, j, rows, cols);
  }
};

// B is packed (or read in place) once, by all threads if it is large. If packing all of it takes each thread
// little beside its share of C, each packs B for itself, before its first tile.
template <class Element>
void compute_block(const KBlock<Element>& block, Index threads) {
  const bool by_thread =
      packed_size(block.kernel, block.b()) <= pack_per_thread_max && block.m() >= min_rows_per_pack * threads;
  const OperandA<Element> a = prepare_a(block.kernel, block.a());
  OperandB<Element>* packed = thread_scratch<OperandB<Element>, struct PackedByThread>(threads);
  std::fill_n(packed, threads, by_thread ? OperandB<Element>{} : block.prepare_b());  // null: not packed yet
  parallel_for(block.grid.tiles(), [&](Index tile) {
    OperandB<Element>& b = packed[threads == 1 ? 0 : thread_index()];
    if (b.data == nullptr) b = block.prepare_b();
    block.compute_tile(tile, a, b);
  });
}

template <class Element>
void gemm_tiles(const GemmKernel<Element>& kernel, const Gemm<float>& g) {
  const Grid grid = choose_grid(kernel, g);
  const Index k = g.a.cols, threads = in_parallel_loop() ? 1 : thread_count();
  for (Index first = 0; first < k; first += kernel.k_block()) {
    compute_block<Element>({kernel, g, grid, first, std::min(k - first, kernel.k_block())}, threads);
  }
}

// Split-K for products with a transposed A, as dW, where k runs over the rows of activations: each thread
// computes whole blocks of k and packs rows that no other thread reads. The blocks of k are the same at any
// number of threads, and their partial C's are added in the order of k. So the bits are the same too.
bool can_split_k(const Gemm<float>& g, Index k_blocks) {
  return g.a.transposed && g.epilogue.bias == nullptr && !g.epilogue.derivative &&
         (k_blocks - 1) * g.c.size() <= split_max;
}

// KC: the kernel's own, or, for split-K, such that the blocks of k are equal up to rounding and their number
// is even. It depends on the shape, on whether A is transposed and on the epilogue, never on the number of
// threads.
template <class Element>
Index choose_kc(const GemmKernel<Element>& kernel, const Gemm<float>& g) {
  constexpr Index min_steps = 128;  // in a shorter block, reading and writing C costs too much
  const Index k = g.a.cols, k_blocks = 2 * block_count(k, 2 * kernel.k_block());
  const bool splits_equally = k >= k_blocks * min_steps && can_split_k(g, k_blocks);
  return splits_equally ? block_count(k, k_blocks * k_pack<Element>) : kernel.kc;
}

// The first block's sums go to C itself, those of the other blocks to scratch until all are done.
template <class Element>
void gemm_split_k(const GemmKernel<Element>& kernel, const Gemm<float>& g) {
  const Index m = g.c.rows, n = g.c.cols, k = g.a.cols;
  const Index steps = kernel.k_block(), k_blocks = block_count(k, steps), stride = scratch_stride<float>(n);
  struct Sums;
  float* sums = thread_scratch<float, Sums>((k_blocks - 1) * m * stride);
  const auto partial = [=](Index block) {
    return Matrix<float>(sums + (block - 1) * m * stride, m, n, stride);
  };

  parallel_for(k_blocks, [&](Index block) {
    const Index first = block * steps, count = std::min(steps, k - first);
    Gemm<float> part = g;
    part.a = g.a.part(0, first, m, count);
    part.b = g.b.part(first, 0, count, n);
    if (block > 0) {
      part.beta = 0;
      part.c = partial(block);
    }
    gemm_tiles(kernel, part);
  });

  constexpr Index rows_per_block = 16;
  parallel_blocks(m, rows_per_block, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      for (Index block = 1; block < k_blocks; ++block) {
        kernels<float>().axpby(n, 1, partial(block).data + i * stride, 1, g.c.data + i * g.c.ld);
      }
    }
  });
}

// A product of few rows whose B is large, such as a wide weight: to pack all of B first would write it to
// memory and read it back. So each item is some columns of C, for which a thread packs B, a block of k at a
// time, into room that stays in its L2 cache. Many items are shared evenly; wide ones read A less often.
void gemm_by_columns(const GemmKernel<float>& kernel, const Gemm<float>& g) {
  constexpr Index max_cols = 256;
  const Index panels = block_count(g.c.cols, kernel.nr);
  const Index cols = std::clamp<Index>(panels / tiles_wanted(), 1, max_cols / kernel.nr) * kernel.nr;
  parallel_blocks(g.c.cols, cols, [&](Index begin, Index end) {
    Gemm<float> part = g;
    part.b = g.b.part(0, begin, g.b.rows, end - begin);
    part.c = g.c.part(0, begin, g.c.rows, end - begin);
    Epilogue<float>& then = part.epilogue;
    if (then.bias != nullptr) then.bias += begin;
    if (then.derivative) then.derivative = then.derivative.part(0, begin, g.c.rows, end - begin);
    gemm_tiles(kernel, part);
  });
}

}  // namespace

template <class Element>
void gemm_native(const GemmKernel<Element>& any, const Gemm<float>& g) {
  GemmKernel<Element> kernel = any;
  kernel.kc = choose_kc(any, g);
  const Index k_blocks = block_count(g.a.cols, kernel.k_block());
  // Ask can_split_k() again: choose_kc() asked it for its own number of blocks, and if it kept the kernel's
  // KC there are other blocks.
  const bool shared_evenly = thread_count() > 1 && !in_parallel_loop() && k_blocks % thread_count() == 0;
  if (shared_evenly && can_split_k(g, k_blocks)) return gemm_split_k(kernel, g);
  if constexpr (std::is_same_v<Element, float>) {
    constexpr Index max_rows = 1024;  // more rows of A do not stay in the L2 cache from one item to the next
    const bool few_rows = !g.a.transposed && g.c.rows <= max_rows;
    if (few_rows && g.b.size() > pack_per_thread_max) return gemm_by_columns(kernel, g);
  }
  gemm_tiles(kernel, g);
}

template void gemm_native(const GemmKernel<float>&, const Gemm<float>&);
template void gemm_native(const GemmKernel<Bf16Pair>&, const Gemm<float>&);
template OperandB<float> pack_b(const GemmKernel<float>&, const Matrix<float>&, float*);
template OperandB<Bf16Pair> pack_b(const GemmKernel<Bf16Pair>&, const Matrix<float>&, Bf16Pair*);
template void apply_epilogue(const Gemm<float>&, Index, Index, Index, Index);
template void apply_epilogue(const Gemm<double>&, Index, Index, Index, Index);

}  // namespace normscope
