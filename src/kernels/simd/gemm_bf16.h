// The native matrix product with operands rounded to bf16 and sums in float: the register tiles of
// kernels/simd/gemm.h over pairs of bf16 (kernels/gemm_kernel.h).
//
// bf16 is the upper half of a float. Pairs are kept as the bits of floats: they are moved, never computed
// with. One instruction multiplies them where the processor has it (AVX512-BF16); elsewhere each half is
// widened to a float again, which is exact.
#pragma once

#include <cstring>

#include "kernels/simd/gemm.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace normscope::NORMSCOPE_ISA {

using Floats = Vec<float>;
using Words = MaskVec<float>;  // the bits of as many floats

// The bits of x rounded to bf16 (to nearest, ties to even), in the lower half of each word. NaN stays NaN.
inline Words rounded(Floats x) {
  const Words bits = (Words)x;
  const Words nearest = bits + 0x7FFF + ((bits >> 16) & 1);
  const Words nan = bits | 0x400000;
  const Words chosen = x == x ? nearest : nan;
  return (chosen >> 16) & 0xFFFF;
}

// 0, n/2, 1, n/2 + 1, ... of n elements.
template <class V, std::size_t... i>
inline V interleaved_halves(V v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(i / 2 + i % 2 * (sizeof...(i) / 2))...);
}

// Words of (earlier, later), lane by lane: the earlier step of k in the low half.
inline Floats pairs_across(Floats earlier, Floats later) {
#if defined(__AVX512BF16__)
  typedef short Halves __attribute__((vector_size(64)));
  const Halves both = (Halves)_mm512_cvtne2ps_pbh((__m512)later, (__m512)earlier);
  return (Floats)interleaved_halves(both, std::make_index_sequence<32>());
#else
  return (Floats)(rounded(earlier) | (rounded(later) << 16));
#endif
}

// Words of two steps side by side, those of a before those of b.
inline Floats pairs_along(Floats a, Floats b) {
#if defined(__AVX512BF16__)
  return (Floats)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
#else
  constexpr auto lane = std::make_index_sequence<lanes<float> >();
  return pairs_across(every_other<0>(a, b, lane), every_other<1>(a, b, lane));
#endif
}

inline std::uint32_t rounded(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if (x != x) return (bits | 0x400000U) >> 16;
  return (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
}

inline float paired(float earlier, float later) {
  const std::uint32_t bits = rounded(earlier) | (rounded(later) << 16);
  float pair;
  std::memcpy(&pair, &bits, sizeof pair);
  return pair;
}

struct Pairs {
  static Floats in_all_lanes(const float* x) {
    std::int32_t bits;  // as a number it could be a signalling NaN, and would not survive arithmetic
    std::memcpy(&bits, x, sizeof bits);
    return (Floats)(Words{} + bits);
  }
  static Floats multiply_add(Floats sum, Floats x, Floats y) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
#else
    const auto earlier = [](Floats pairs) { return (Floats)((Words)pairs << 16); };
    const auto later = [](Floats pairs) { return (Floats)((Words)pairs & -0x10000); };
    return sum + earlier(x) * earlier(y) + later(x) * later(y);
#endif
  }
};

// out[q] = (x[2q], x[2q+1]) for q < k/2; an odd last one is paired with zero.
inline void pack_along(Index k, const float* x, float* out) {
  constexpr Index count = lanes<float>;
  Index p = 0;
  for (; p + 2 * count <= k; p += 2 * count) {
    store(out + p / 2, pairs_along(load(x + p), load(x + p + count)));
  }
  for (; p < k; p += 2) out[p / 2] = paired(x[p], p + 1 < k ? x[p + 1] : 0);
}

// out[j] = (x[j], next[j]) for n columns; `next` null: zeros.
inline void pack_across(Index n, const float* x, const float* next, float* out) {
  each_vector<float>(n, [&](Index j, auto part) {
    part.put(out + j, pairs_across(part.get(x + j), next != nullptr ? part.get(next + j) : Floats{}));
  });
}

inline void pack_left_pairs(bool transposed, Index m, Index k, const float* a, Index lda, float* out,
                            Index stride) {
  if (!transposed) {
    for (Index i = 0; i < m; ++i) pack_along(k, a + i * lda, out + i * stride);
  } else {
    for (Index p = 0; p < k; p += 2) {
      pack_across(m, a + p * lda, p + 1 < k ? a + (p + 1) * lda : nullptr, out + p / 2 * stride);
    }
  }
}

inline void pack_panel_pairs(bool transposed, Index k, Index n, const float* b, Index ldb, float* panel) {
  constexpr Index cols = tile_cols<float>;
  if (!transposed) {
    for (Index p = 0; p < k; p += 2) {
      prefetch_row(cols, b + (p + rows_ahead) * ldb);
      prefetch_row(cols, b + (p + rows_ahead + 1) * ldb);
      float* row = panel + p / 2 * cols;
      pack_across(n, b + p * ldb, p + 1 < k ? b + (p + 1) * ldb : nullptr, row);
      for (Index j = n; j < cols; ++j) row[j] = 0;
    }
    return;
  }
  // Rows of B first become rows of pairs, then columns of the panel.
  constexpr Index most = tile_depth;
  float pairs[lanes<float> * most];
  for (Index j = 0; j < cols; j += lanes<float>) {
    const Index left = n - j < 0 ? 0 : n - j, count = left < lanes<float> ? left : lanes<float>;
    for (Index row = 0; row < count; ++row) {
      prefetch_row(2 * lanes<float>, b + (j + row + rows_ahead) * ldb);
      pack_along(k, b + (j + row) * ldb, pairs + row * most);
    }
    pack_transposed_strip((k + 1) / 2, count, pairs, most, panel + j);
  }
}

constexpr GemmKernel<float> gemm_bf16_kernel = {
    .rows = tile_rows,
    .cols = tile_cols<float>,
    .depth = tile_depth,
    .steps = 2,
    .pack_panel = pack_panel_pairs,
    .pack_left = pack_left_pairs,
    .multiply = multiply<float, Pairs>,
};

}  // namespace normscope::NORMSCOPE_ISA
