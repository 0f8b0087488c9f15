// The native provider: packs B, cuts C into tiles, leaves each tile to the kernel of this instruction set.
// What the constants rest on is in kernels/NOTES.md.
#include "kernels/gemm/schedule.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/bf16.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// Numbers of the partial C's of split-K, 2 MiB of float.
constexpr Index split_max = 512 * 1024;

// An operand of at most so many numbers is packed by the calling thread: starting threads would take longer.
constexpr Index serial_pack_max = 16 * 1024;

// Each thread packs its own B if B has at most 512 KiB and the thread has at least 256 rows of C: one
// parallel loop instead of two, and no cache line that another core has written.
constexpr Index pack_per_thread_max = 128 * 1024, min_rows_per_pack = 256;

// The grid of C. No bit depends on it.
struct Grid {
  Index row_tiles, column_tiles;
  Index tile_cols;

  // A tile of one band of register tiles is already efficient, since B is packed once for all of them and
  // read as a stream; of more bands A is packed together. So there are tiles enough for all threads to end at
  // about the same time wherever the shape allows it.
  Grid(Index m, Index n, Index band_rows, Index panel_cols, Index panel_numbers) {
    constexpr Index max_cols = 512, max_bands = 8;
    const Index enough = in_parallel_loop() ? 1 : 4 * thread_count();
    // Panels that many bands read take half of the L2 cache at most, 512 KiB of float. For few bands it is
    // not worth copying A more often.
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

// Calls body(piece) for each piece of an operand of so many numbers, in parallel unless the operand is small.
template <class Body>
void for_each_piece(Index numbers, Index pieces, Body&& body) {
  if (numbers > serial_pack_max) return parallel_for(pieces, body);
  for (Index i = 0; i < pieces; ++i) body(i);
}

bool is_read_in_place(const GemmKernel& kernel, const Matrix<float>& a) {
  return kernel.pack_a == nullptr || (a.half != nullptr && !a.transposed);
}

Index stride_of_a(const GemmKernel& kernel, const Matrix<float>& a) {
  return scratch_stride<float>(a.transposed ? a.rows : kernel.packed(a.cols));
}

}  // namespace

Index packed_size(const GemmKernel& kernel, const Matrix<float>& b) {
  return kernel.packed(b.rows) * block_count(b.cols, kernel.nr) * kernel.nr;
}

PackedB pack_b(const GemmKernel& kernel, const Matrix<float>& b, float* room) {
  const Index k = b.rows, n = b.cols, k_blocks = block_count(k, kernel.k_block());
  const PackedB out{room, kernel.nr, kernel.packed(k) * kernel.nr};
  for_each_piece(k * n, block_count(n, kernel.nr) * k_blocks, [&](Index piece) {
    const Index panel = piece / k_blocks, j = panel * kernel.nr, p = piece % k_blocks * kernel.k_block();
    const Matrix<float> part = b.block(p, j, std::min(kernel.k_block(), k - p), std::min(kernel.nr, n - j));
    kernel.pack_b(part, room + panel * out.panel_size + p / kernel.k_pack * kernel.nr);
  });
  return out;
}

bool is_in_panels(const GemmKernel& kernel, const Matrix<float>& b) {
  return kernel.k_pack == 1 && !b.transposed && b.cols % (kernel.nr / 2) == 0;
}

Index packed_size_a(const GemmKernel& kernel, const Matrix<float>& a) {
  if (is_read_in_place(kernel, a)) return 0;
  return (a.transposed ? kernel.packed(a.cols) : a.rows) * stride_of_a(kernel, a);
}

PackedA pack_a(const GemmKernel& kernel, const Matrix<float>& a, float* room) {
  if (is_read_in_place(kernel, a)) {
    if (a.half == nullptr) return {a.value, a.ld, a.transposed};
    return {reinterpret_cast<const float*>(a.half), a.ld / kernel.k_pack, false};
  }
  constexpr Index rows_per_block = 64;
  const PackedA out{room, stride_of_a(kernel, a), a.transposed};
  // In the order of memory: each piece takes whole rows of A, of a transposed one some steps of k.
  const Index rows = a.transposed ? a.cols : a.rows;
  for_each_piece(a.size(), block_count(rows, rows_per_block), [&](Index block) {
    const Index row = block * rows_per_block, count = std::min(rows_per_block, rows - row);
    const Matrix<float> part = a.transposed ? a.block(0, row, a.rows, count) : a.block(row, 0, count, a.cols);
    kernel.pack_a(part, room + (a.transposed ? row / kernel.k_pack : row) * out.stride, out.stride);
  });
  return out;
}

void multiply(const GemmKernel& kernel, Index m, Index n, Index k, const PackedA& a, const PackedB& b,
              const TileOutput& out) {
  const Index packed_k = kernel.packed(k);
  kernel.multiply(m, n, std::min(kernel.kc, packed_k), a, b, out);  // no copy, which would wait for stores
  for (Index p = kernel.kc; p < packed_k; p += kernel.kc) {
    TileOutput sums = out;
    sums.beta = 1;
    kernel.multiply(m, n, std::min(kernel.kc, packed_k - p), a.from(0, p), b.from(p, 0), sums);
  }
}

template <class Real>
void apply_epilogue(const Gemm<Real>& g, Index row, Index col, const Matrix<Real>& sums) {
  const Epilogue<Real>& then = g.epilogue;
  const bool is_bf16 = g.c.dtype() == DType::bf16;
  if (then.empty() && !is_bf16) return;
  for (Index i = 0; i < sums.rows; ++i) {
    Real* x = sums.value + i * sums.ld;
    const Matrix<Real> c = g.c.block(row + i, col, 1, sums.cols);
    if (then.bias != nullptr) kernels<Real>().axpby(sums.cols, Real(1), then.bias + col, Real(1), x);
    if (then.derivative) {
      const Matrix<Real> derivative = then.derivative.block(row + i, col, 1, sums.cols);
      activation(then.activation, sums.cols, x, c, derivative);
    } else if (is_bf16) {
      to_bf16({x, 1, sums.cols}, c);
    }
  }
}

template void apply_epilogue(const Gemm<float>&, Index, Index, const Matrix<float>&);
template void apply_epilogue(const Gemm<double>&, Index, Index, const Matrix<double>&);

namespace {

void multiply_tiles(const GemmKernel& kernel, const Gemm<float>& g) {
  const Index m = g.c.rows, n = g.c.cols, k = g.a.cols;
  const Index panel_numbers = std::min(kernel.kc, kernel.packed(k)) * kernel.nr;
  const Grid grid(m, n, kernel.mr, kernel.nr, panel_numbers);
  const bool is_bf16 = g.c.dtype() == DType::bf16;
  // A block of k at a time, whose B stays in the cache; but the sums of a bf16 C are not put down in between.
  const Index max_steps = is_bf16 ? k : kernel.k_block();
  // Not by narrow bands, which read B often, nor where each of its rows is on a page of its own.
  const bool reads_b_in_place = kernel.mr > 8 && g.b.ld <= 256;
  // What a register tile can convert by itself.
  const bool tiles_convert = is_bf16 && g.epilogue.empty() && kernel.packed(k) <= kernel.kc;

  for (Index k0 = 0; k0 < k; k0 += max_steps) {
    const Index steps = std::min(k - k0, max_steps);
    const Matrix<float> b_part = g.b.block(k0, 0, steps, n);
    struct B;
    struct A;
    const auto pack = [&] {
      if (reads_b_in_place) return packed_b<B>(kernel, b_part);
      return pack_b(kernel, b_part, thread_scratch<float, B>(packed_size(kernel, b_part)));
    };
    const PackedA a = packed_a<A>(kernel, g.a.block(0, k0, m, steps));
    const auto multiply_tile = [&](Index tile, const PackedB& b) {
      const Index row_tile = tile / grid.column_tiles;
      const Index i = m * row_tile / grid.row_tiles, rows = m * (row_tile + 1) / grid.row_tiles - i;
      const Index j = tile % grid.column_tiles * grid.tile_cols, cols = std::min(grid.tile_cols, n - j);
      struct Sums;
      Matrix<float> sums = g.c.block(i, j, rows, cols);
      if (is_bf16 && !tiles_convert) {
        const Index stride = scratch_stride<float>(grid.tile_cols);
        sums = {thread_scratch<float, Sums>(rows * stride), rows, cols, stride};
      }
      multiply(kernel, rows, cols, steps, a.from(i, 0), b.from(0, j / kernel.nr),
               {g.alpha, k0 == 0 ? g.beta : 1, sums});
      if (k0 + steps == k && !tiles_convert) apply_epilogue(g, i, j, sums);
    };

    const Index tiles = grid.row_tiles * grid.column_tiles, threads = in_parallel_loop() ? 1 : thread_count();
    if (packed_size(kernel, b_part) <= pack_per_thread_max && m >= min_rows_per_pack * threads) {
      parallel_for(threads, [&](Index thread) {
        const PackedB b = pack();
        for (Index tile = tiles * thread / threads; tile < tiles * (thread + 1) / threads; ++tile)
          multiply_tile(tile, b);
      });
    } else {
      const PackedB b = pack();
      parallel_for(tiles, [&](Index tile) { multiply_tile(tile, b); });
    }
  }
}

// Split-K for dW, whose k are the rows of activations: each thread owns blocks of k and packs rows that
// nobody else reads. Partial C's are added in the order of k, so the bits are those of one thread; this needs
// alpha = 1, else they would be rounded once more.
bool can_split_k(const Gemm<float>& g, Index k_blocks) {
  return g.a.transposed && g.alpha == 1 && g.c.dtype() == DType::real && g.epilogue.empty() &&
         (k_blocks - 1) * g.c.size() <= split_max;
}

// The longest blocks of k, or an even number of equal ones that threads may take.
Index choose_kc(const GemmKernel& kernel, const Gemm<float>& g) {
  constexpr Index min_steps = 128;  // a shorter block does not repay its visit of C
  const Index k = g.a.cols, k_blocks = 2 * block_count(k, 2 * kernel.k_block());
  const bool even = k >= k_blocks * min_steps && can_split_k(g, k_blocks);
  return even ? block_count(k, k_blocks * kernel.k_pack) : kernel.kc;
}

// The sums of the first block go to C itself, the others to room of their own until all are done.
void gemm_split_k(const GemmKernel& kernel, const Gemm<float>& g) {
  const Index m = g.c.rows, n = g.c.cols, k = g.a.cols;
  const Index steps = kernel.k_block(), k_blocks = block_count(k, steps), stride = scratch_stride<float>(n);
  struct Sums;
  float* room = thread_scratch<float, Sums>((k_blocks - 1) * m * stride);
  const auto partial = [=](Index block) {
    return Matrix<float>(room + (block - 1) * m * stride, m, n, stride);
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
        kernels<float>().axpby(n, 1.0f, partial(block).value + i * stride, 1.0f, g.c.value + i * g.c.ld);
      }
    }
  });
}

}  // namespace

bool is_few_rows(const Gemm<float>& g) {
  return g.c.rows < rows_worth_packing && !g.a.transposed && g.b.transposed && g.b.half == nullptr;
}

// Each element of C is a dot product with a row of Bᵀ.
void gemm_few_rows(const GemmKernel& kernel, const Gemm<float>& g) {
  struct Rows;
  const Index m = g.c.rows, k = g.a.cols;
  Matrix<float> a = g.a;
  if (a.half != nullptr) {
    a = {thread_scratch<float, Rows>(m * k), m, k};
    to_float(g.a, a.value);
  }
  constexpr Index numbers_per_block = 16 * 1024;
  const Index cols_per_block = std::max<Index>(16, numbers_per_block / k);
  parallel_blocks(g.c.cols, cols_per_block, [&](Index begin, Index end) {
    struct Sums;
    const Index cols = end - begin;
    float* dots = thread_scratch<float, Sums>(2 * cols);
    for (Index i = 0; i < m; ++i) {
      const Matrix<float> c = g.c.block(i, begin, 1, cols);
      const Matrix<float> sums = c.half != nullptr ? Matrix<float>(dots + cols, 1, cols) : c;
      kernel.dot_rows(cols, k, a.value + i * a.ld, g.b.value + begin * g.b.ld, g.b.ld, dots);
      kernels<float>().axpby(cols, g.alpha, dots, g.beta, sums.value);
      apply_epilogue(g, i, begin, sums);
    }
  });
}

void gemm_native(const GemmKernel& any, const Gemm<float>& g) {
  if (is_few_rows(g)) return gemm_few_rows(any, g);
  GemmKernel kernel = any;
  kernel.kc = choose_kc(any, g);
  const Index k_blocks = block_count(g.a.cols, kernel.k_block());
  const bool shared_evenly = thread_count() > 1 && !in_parallel_loop() && k_blocks % thread_count() == 0;
  const bool splits_k = shared_evenly && can_split_k(g, k_blocks);
  splits_k ? gemm_split_k(kernel, g) : multiply_tiles(kernel, g);
}

}  // namespace normscope
