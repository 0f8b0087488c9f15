// The product of pairs of bf16 by AMX, Intel's Advanced Matrix Extensions: eight registers of 16 rows of 64
// bytes, the tiles, and an instruction that multiplies two of them and adds the product to a third. Compiled
// by kernels/isa/avx512_amx.cpp, and by tests/engine/emulated_amx.cpp for processors without tiles.
//
// Four tiles hold a block of C, 32 x 32. A step of 16 pairs of k loads four tiles of operands and multiplies
// each of A's with each of B's. Intrinsics name tiles by literal numbers:
//
//                      6: B's columns 0-15   7: B's columns 16-31
//   4: A's rows 0-15   0                     1
//   5: A's rows 16-31  2                     3
//
// All edges are in memory: packed operands have zeros up to whole steps of k and whole panels, A has room for
// the rows of a whole block, and an incomplete block of C is computed in a buffer. So the tiles have one
// shape, which is configured once a call.
//
// Sums begin with 0, never with C: a block of k has the same sums whether they are added to C at once, or
// later as those of split-K are.
#pragma once

#include "kernels/gemm/microkernel.h"

namespace normscope::NORMSCOPE_NAMESPACE {

constexpr Index pairs_per_tile = 16, tile_width = 16, block_size = 2 * tile_width;

// The operand of the instruction that configures the tiles; the palette of number 1 is AMX's only one.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes_in_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// A whole block: sums (32, 32) = A B. `pairs` is a multiple of 16.
inline void multiply_block(Index pairs, const OperandA<Bf16Pair>& a, const OperandB<Bf16Pair>& b, float* sums,
                           Index stride) {
  constexpr Index bytes = 4;  // of a pair, and of a float
  float* lower = sums + tile_width * stride;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);  // GCC's intrinsics do not say that they read memory
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (Index p = 0; p < pairs; p += pairs_per_tile) {
    const Bf16Pair *rows = a.data + p, *steps = b.data + p * b.stride;
    _tile_loadd(6, steps, bytes * b.stride);
    _tile_loadd(7, steps + tile_width, bytes * b.stride);
    _tile_loadd(4, rows, bytes * a.stride);
    _tile_loadd(5, rows + tile_width * a.stride, bytes * a.stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, bytes * stride);
  _tile_stored(1, sums + tile_width, bytes * stride);
  _tile_stored(2, lower, bytes * stride);
  _tile_stored(3, lower + tile_width, bytes * stride);
}

// C (m, n) by the calling thread: for each panel of B, the rows of A, which stay in the L2 cache. If C = A B,
// the sums of whole blocks are stored in C itself.
inline void tiles_macro_kernel(Index m, Index n, Index k, const OperandA<Bf16Pair>& a,
                               const OperandB<Bf16Pair>& b, const TileOutput& out) {
  static constexpr TileShapes shapes;
  const Index pairs = (k + pairs_per_tile - 1) / pairs_per_tile * pairs_per_tile;
  alignas(64) float buffer[block_size * block_size];
  _tile_loadconfig(&shapes);
  for (Index j = 0; j < n; j += block_size) {
    const Index cols = n - j < block_size ? n - j : block_size;
    const OperandB<Bf16Pair> panel = b.from(0, j / block_size);
    for (Index i = 0; i < m; i += block_size) {
      const Index rows = m - i < block_size ? m - i : block_size;
      const TileOutput to(out, i, j);
      if (rows == block_size && cols == block_size && to.alpha == 1 && to.beta == 0) {
        multiply_block(pairs, a.from(i, 0), panel, to.c, to.ldc);
        continue;
      }
      prefetch_tile(rows, to);
      multiply_block(pairs, a.from(i, 0), panel, buffer, block_size);
      for (Index row = 0; row < rows; ++row) {
        float* c = to.c + row * to.ldc;
        for_each_vector(cols, [&](Index col, auto part) {
          const Vec product = part.get(buffer + row * block_size + col) * to.alpha;
          part.put(c + col, to.beta == 0 ? product : part.get(c + col) * to.beta + product);
        });
      }
    }
  }
  _tile_release();
}

// The panel of pack_panel(), and zeros up to a whole step of the tiles.
inline void pack_tiles_of_b(const Matrix<float>& b, Bf16Pair* panel) {
  pack_panel(b, panel);
  for (Index p = packed_steps<Bf16Pair>(b.rows); p % pairs_per_tile != 0; ++p) {
    for (Index j = 0; j < NR; j += lanes) store(panel + p * NR + j, VecHalves{});
  }
}

// Rows of A as pairs. Squares of a transposed A are transposed: 32 steps of k of 16 rows become pairs along
// k, and then rows.
inline void pack_tiles_of_a(const Matrix<float>& a, Bf16Pair* out, Index stride) {
  if (!a.transposed) return pack_a(a, out, stride);
  const auto numbers = [&](Index step, Index row) {
    return step < a.cols ? load_part(a.data + step * a.ld + row, a.rows - row) : Vec{};
  };
  for (Index p = 0; p < a.cols; p += 2 * lanes) {
    for (Index i = 0; i < a.rows; i += lanes) {
      Vec square[lanes];
#pragma GCC unroll 16
      for (Index pair = 0; pair < lanes; ++pair) {
        square[pair] = (Vec)interleaved_pairs(numbers(p + 2 * pair, i), numbers(p + 2 * pair + 1, i));
      }
      transpose(square);
      const Index rows = a.rows - i < lanes ? a.rows - i : lanes;
      for (Index r = 0; r < rows; ++r) store(out + (i + r) * stride + p / 2, (VecHalves)square[r]);
    }
  }
}

extern const GemmKernel<Bf16Pair> bf16_kernel;
constexpr GemmKernel<Bf16Pair> bf16_kernel = {.mr = block_size,
                                              .nr = NR,
                                              .kc = KC,
                                              .packs_a_by_rows = true,
                                              .steps_at_once = pairs_per_tile,
                                              .pack_panel = pack_tiles_of_b,
                                              .pack_a = pack_tiles_of_a,
                                              .macro_kernel = tiles_macro_kernel};
static_assert(NR == block_size && lanes == pairs_per_tile);

}  // namespace normscope::NORMSCOPE_NAMESPACE
