// Packing of GEMM's operands (kernels/gemm/kernel.h). Compiled by kernels/isa/*.cpp, as kernels/simd is.
#pragma once

#include <utility>

#include "kernels/gemm/kernel.h"
#include "kernels/simd/vector.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace normscope::NORMSCOPE_ISA {

// The register tile: MR rows by two vectors of accumulators; beside them live the two vectors of B, one
// number of A in all lanes, and without fused multiply-add a product.
#if NORMSCOPE_VECTOR_BYTES == 64 || defined(__aarch64__)
constexpr Index tile_rows = 14;  // of 32 registers
#else
constexpr Index tile_rows = 6;  // of 16
#endif
constexpr Index tile_cols = 2 * lanes;

// KC: panels of B are streams from the L2 cache at any depth, and longer blocks visit C less often.
constexpr Index tile_depth = 512;

// Rows to pack are a page or more apart, which hardware prefetchers do not follow: they are prefetched by
// hand. Prefetching past the end is harmless.
constexpr Index prefetch_distance = 16;

constexpr auto each_lane = std::make_index_sequence<lanes>();

// a0, b0, a1, b1, ... of the first halves of a and b; of the second.
template <std::size_t... i>
inline Vec interleave_low(Vec a, Vec b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (i / 2 + (i % 2) * lanes)...);
}
template <std::size_t... i>
inline Vec interleave_high(Vec a, Vec b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (lanes / 2 + i / 2 + (i % 2) * lanes)...);
}

// Transposes a square of vectors. Interleaving row r with row r + lanes/2 rotates the bits of the
// element's number (row, lane) by one; log2(lanes) times, and row and lane have changed places.
inline void transpose(Vec (&square)[lanes]) {
#pragma GCC unroll 4
  for (Index step = 1; step < lanes; step *= 2) {
    Vec next[lanes];
#pragma GCC unroll 8
    for (Index r = 0; r < lanes / 2; ++r) {
      next[2 * r] = interleave_low(square[r], square[r + lanes / 2], each_lane);
      next[2 * r + 1] = interleave_high(square[r], square[r + lanes / 2], each_lane);
    }
#pragma GCC unroll 16
    for (Index r = 0; r < lanes; ++r) square[r] = next[r];
  }
}

// Stores two consecutive steps of k of a vector of columns into a panel; one step, the last.
inline void put_steps(Vec first, Vec second, float* panel) {
  store(panel, first);
  store(panel + tile_cols, second);
}
inline void put_last_step(Vec last, float* panel) { store(panel, last); }

#if defined(__AVX512BF16__)

typedef std::uint32_t VecPairs __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES), aligned(4), may_alias));
typedef std::uint16_t VecHalves __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));

// a and then b, rounded by the instruction, which takes subnormal numbers as zero.
inline VecHalves to_bf16(Vec a, Vec b) { return (VecHalves)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a); }

// 0, n/2, 1, n/2 + 1, ... of n elements.
template <std::size_t... i>
inline VecHalves interleave_halves(VecHalves v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(i / 2 + i % 2 * lanes)...);
}

inline void store(Bf16Pair* p, VecHalves pairs) { *reinterpret_cast<VecPairs*>(p) = (VecPairs)pairs; }

inline void put_steps(Vec first, Vec second, Bf16Pair* panel) {
  store(panel, interleave_halves(to_bf16(first, second), std::make_index_sequence<2 * lanes>()));
}
inline void put_last_step(Vec last, Bf16Pair* panel) { put_steps(last, Vec{}, panel); }

// A vector of the `count` numbers from p on, and zeros past them.
inline Vec load_part(const float* p, Index count) {
  return count >= lanes ? load(p) : Part{count > 0 ? count : 0}.get(p);
}

// Packs A in pairs, row by row of its memory. Whole vectors are written; `stride` has room for them.
inline void pack_a(const Matrix<float>& a, Bf16Pair* out, Index stride) {
  const float* x = a.data;
  if (!a.transposed) {
    for (Index i = 0; i < a.rows; ++i, x += a.ld, out += stride) {
      for (Index p = 0; p < a.cols; p += 2 * lanes) {
        store(out + p / 2,
              to_bf16(load_part(x + p, a.cols - p), load_part(x + p + lanes, a.cols - p - lanes)));
      }
    }
    return;
  }
  for (Index p = 0; p < a.cols; p += 2, x += 2 * a.ld, out += stride) {
    for (Index i = 0; i < a.rows; i += lanes) {
      const Vec first = load_part(x + i, a.rows - i);
      p + 1 < a.cols ? put_steps(first, load_part(x + a.ld + i, a.rows - i), out + i)
                     : put_last_step(first, out + i);
    }
  }
}

#endif

// Packs the columns of a panel from the rows of B's transpose: n of them exist, n <= lanes, and zeros follow.
template <class Element>
inline void pack_transposed_strip(Index k, Index n, const float* rows, Index ld, Element* panel) {
  const auto at = [&](Index p) { return panel + p / k_pack<Element> * tile_cols; };
  Index p = 0;
  if (n == lanes) {
    for (; p + lanes <= k; p += lanes) {
      Vec square[lanes];
#pragma GCC unroll 16
      for (Index j = 0; j < lanes; ++j) {
        __builtin_prefetch(rows + (j + prefetch_distance) * ld + p);
        square[j] = load(rows + j * ld + p);
      }
      transpose(square);
#pragma GCC unroll 8
      for (Index i = 0; i < lanes; i += 2) put_steps(square[i], square[i + 1], at(p + i));
    }
  }
  const auto step = [&](Index q) {
    Vec v{};
    for (Index j = 0; j < n; ++j) v[j] = rows[j * ld + q];
    return v;
  };
  for (; p + 2 <= k; p += 2) put_steps(step(p), step(p + 1), at(p));
  if (p < k) put_last_step(step(p), at(p));
}

template <class Element>
inline void pack_b(const Matrix<float>& b, Element* panel) {
  const Index k = b.rows, n = b.cols, second = n > lanes ? n - lanes : 0;
  if (b.transposed) {
    pack_transposed_strip(k, n < lanes ? n : lanes, b.data, b.ld, panel);
    return pack_transposed_strip(k, second, b.data + lanes * b.ld, b.ld, panel + lanes);
  }
  const auto pack = [&](auto left, auto right) {
    const float* row = b.data;
    for (Index p = 0; p < k; p += 2, row += 2 * b.ld, panel += 2 / k_pack<Element> * tile_cols) {
      const float* next = row + b.ld;
      for (Index j = 0; j < tile_cols; j += 16) {
        __builtin_prefetch(row + prefetch_distance * b.ld + j);
        __builtin_prefetch(next + prefetch_distance * b.ld + j);
      }
      if (p + 1 == k) {
        put_last_step(left.get(row), panel);
        return put_last_step(right.get(row + lanes), panel + lanes);
      }
      put_steps(left.get(row), left.get(next), panel);
      put_steps(right.get(row + lanes), right.get(next + lanes), panel + lanes);
    }
  };
  n == tile_cols ? pack(Whole{}, Whole{}) : pack(Part{n < lanes ? n : lanes}, Part{second});
}

}  // namespace normscope::NORMSCOPE_ISA
