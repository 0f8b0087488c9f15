// The native provider: packs B, cuts C into tiles, leaves each tile to the kernel of this instruction set.
// Measurements behind the constants: kernels/NOTES.md.
#include "kernels/gemm/schedule.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// The most numbers in the partial C's of split-K: 2 MiB of float.
constexpr Index split_max = 512 * 1024;

// Operands of fewer numbers are packed by the calling thread: starting threads would take longer.
constexpr Index serial_pack_max = 16 * 1024;

// Each thread packs its own B if B has at most 512 KiB and the thread has at least 256 rows of C: one
// parallel loop instead of two, and no cache line that another core has written.
constexpr Index pack_per_thread_max = 128 * 1024, min_rows_per_pack = 256;

// The grid of C. No bit depends on it.
struct Grid {
  Index row_tiles, column_tiles;
  Index tile_cols;

  // A tile of one band of register tiles is already efficient, since B is packed once for all of them and
  // read as a stream. So there are tiles enough for all threads to end at about the same time wherever the
  // shape allows it.
  Grid(Index m, Index n, Index band_rows, Index panel_cols, Index panel_numbers) {
    constexpr Index max_cols = 512, max_bands = 8;
    const Index enough = in_parallel_loop() ? 1 : 4 * thread_count();
    // Panels that many bands read take half of the L2 cache at most, 512 KiB.
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

// Call body(piece) for the pieces of an operand of `numbers` numbers.
template <class Body>
void for_each_piece(Index numbers, Index pieces, Body&& body) {
  if (numbers > serial_pack_max) return parallel_for(pieces, body);
  for (Index i = 0; i < pieces; ++i) body(i);
}

// A as the kernel reads it: in place, or packed in scratch.
template <class Element>
PackedA<Element> packed_a(const GemmKernel<Element>& kernel, const Matrix<float>& a) {
  if constexpr (std::is_same_v<Element, float>) {
    return {a.data, a.ld, a.transposed};
  } else {
    // Pieces in the order of memory: whole rows of A, or an even number of steps of its transpose.
    constexpr Index rows_per_piece = 64;
    const Index stride = scratch_stride<Element>(a.transposed ? a.rows : packed_steps<Element>(a.cols));
    const Index rows = a.transposed ? a.cols : a.rows;
    struct Packed;
    Element* packed = thread_scratch<Element, Packed>(rows * stride);
    for_each_piece(a.size(), block_count(rows, rows_per_piece), [&](Index piece) {
      const Index row = piece * rows_per_piece, count = std::min(rows_per_piece, rows - row);
      const Matrix<float> part =
          a.transposed ? a.block(0, row, a.rows, count) : a.block(row, 0, count, a.cols);
      kernel.pack_a(part, packed + (a.transposed ? row / k_pack<Element> : row) * stride, stride);
    });
    return {packed, stride, a.transposed};
  }
}

}  // namespace

template <class Element>
PackedB<Element> pack_b(const GemmKernel<Element>& kernel, const Matrix<float>& b, Element* packed) {
  const Index k = b.rows, n = b.cols, steps = kernel.k_block(), k_blocks = block_count(k, steps);
  const PackedB<Element> out{packed, kernel.nr, packed_steps<Element>(k) * kernel.nr};
  for_each_piece(k * n, block_count(n, kernel.nr) * k_blocks, [&](Index piece) {
    const Index panel = piece / k_blocks, j = panel * kernel.nr, p = piece % k_blocks * steps;
    kernel.pack_b(b.block(p, j, std::min(steps, k - p), std::min(kernel.nr, n - j)),
                  packed + panel * out.panel_size + p / k_pack<Element> * kernel.nr);
  });
  return out;
}

void multiply(const GemmKernel<float>& kernel, Index m, Index n, Index k, const PackedA<float>& a,
              const PackedB<float>& b, const TileOutput& out) {
  kernel.multiply(m, n, std::min(kernel.kc, k), a, b, out);  // a copy of `out` would stall on its stores
  for (Index p = kernel.kc; p < k; p += kernel.kc) {
    TileOutput sums = out;
    sums.beta = 1;
    kernel.multiply(m, n, std::min(kernel.kc, k - p), a.from(0, p), b.from(p, 0), sums);
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

template <class Element>
void multiply_tiles(const GemmKernel<Element>& kernel, const Gemm<float>& g) {
  const Index m = g.c.rows, n = g.c.cols, k = g.a.cols;
  const Grid grid(m, n, kernel.mr, kernel.nr, std::min(kernel.kc, packed_steps<Element>(k)) * kernel.nr);
  // B is read unpacked by tall tiles alone, and where several of its rows share a page: otherwise TLB misses
  // dominate.
  const bool reads_b_in_place = kernel.mr > 8 && g.b.ld <= 256;

  for (Index k0 = 0; k0 < k; k0 += kernel.k_block()) {  // a block whose B stays in the cache
    const Index steps = std::min(k - k0, kernel.k_block());
    const Matrix<float> b_part = g.b.block(k0, 0, steps, n);
    struct B;
    const auto pack = [&] {
      if constexpr (std::is_same_v<Element, float>) {
        if (reads_b_in_place) return packed_b<B>(kernel, b_part);
      }
      return pack_b(kernel, b_part, thread_scratch<Element, B>(packed_size(kernel, b_part)));
    };
    const PackedA<Element> a = packed_a(kernel, g.a.block(0, k0, m, steps));
    const auto multiply_tile = [&](Index tile, const PackedB<Element>& b) {
      const Index row_tile = tile / grid.column_tiles;
      const Index i = m * row_tile / grid.row_tiles, rows = m * (row_tile + 1) / grid.row_tiles - i;
      const Index j = tile % grid.column_tiles * grid.tile_cols, cols = std::min(grid.tile_cols, n - j);
      kernel.multiply(rows, cols, packed_steps<Element>(steps), a.from(i, 0), b.from(0, j / kernel.nr),
                      {1, k0 == 0 ? g.beta : 1, g.c.block(i, j, rows, cols)});
      if (k0 + steps == k) apply_epilogue(g, i, j, rows, cols);
    };

    const Index tiles = grid.row_tiles * grid.column_tiles, threads = in_parallel_loop() ? 1 : thread_count();
    if (packed_size(kernel, b_part) <= pack_per_thread_max && m >= min_rows_per_pack * threads) {
      std::vector<PackedB<Element>> packed(static_cast<std::size_t>(threads));
      parallel_for(tiles, [&](Index tile) {
        PackedB<Element>& b = packed[threads == 1 ? 0 : thread_index()];
        if (b.data == nullptr) b = pack();
        multiply_tile(tile, b);
      });
    } else {
      const PackedB<Element> b = pack();
      parallel_for(tiles, [&](Index tile) { multiply_tile(tile, b); });
    }
  }
}

// Split-K for dW, whose k are the rows of activations: each thread owns blocks of k and packs rows that no
// other thread reads. Partial C's are added in the order of k, so the bits are those of one thread.
bool can_split_k(const Gemm<float>& g, Index k_blocks) {
  return g.a.transposed && g.epilogue.bias == nullptr && !g.epilogue.derivative &&
         (k_blocks - 1) * g.c.size() <= split_max;
}

// KC: the longest blocks of k, or an even number of equal ones for split-K.
template <class Element>
Index choose_kc(const GemmKernel<Element>& kernel, const Gemm<float>& g) {
  constexpr Index min_steps = 128;  // a shorter block does not repay its visit of C
  const Index k = g.a.cols, k_blocks = 2 * block_count(k, 2 * kernel.k_block());
  const bool even = k >= k_blocks * min_steps && can_split_k(g, k_blocks);
  return even ? block_count(k, k_blocks * k_pack<Element>) : kernel.kc;
}

// The sums of the first block go to C itself, the others to scratch until all are done.
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
    part.a = g.a.block(0, first, m, count);
    part.b = g.b.block(first, 0, count, n);
    if (block > 0) {
      part.beta = 0;
      part.c = partial(block);
    }
    multiply_tiles(kernel, part);
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

}  // namespace

template <class Element>
void gemm_native(const GemmKernel<Element>& any, const Gemm<float>& g) {
  GemmKernel<Element> kernel = any;
  kernel.kc = choose_kc(any, g);
  const Index k_blocks = block_count(g.a.cols, kernel.k_block());
  const bool shared_evenly = thread_count() > 1 && !in_parallel_loop() && k_blocks % thread_count() == 0;
  const bool splits_k = shared_evenly && can_split_k(g, k_blocks);
  splits_k ? gemm_split_k(kernel, g) : multiply_tiles(kernel, g);
}

template void gemm_native(const GemmKernel<float>&, const Gemm<float>&);
template void gemm_native(const GemmKernel<Bf16Pair>&, const Gemm<float>&);
template PackedB<float> pack_b(const GemmKernel<float>&, const Matrix<float>&, float*);
template void apply_epilogue(const Gemm<float>&, Index, Index, Index, Index);
template void apply_epilogue(const Gemm<double>&, Index, Index, Index, Index);

}  // namespace normscope
