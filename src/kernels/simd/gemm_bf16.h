// The native matrix product with operands rounded to bf16 and sums in float: the register tiles of
// kernels/simd/gemm.h over pairs of bf16 (kernels/gemm_kernel.h).
//
// bf16 is the upper half of a float. Pairs are kept as the bits of floats: they are moved, never computed
// with. One instruction multiplies them where the processor has it (AVX512-BF16); elsewhere each half is
// widened to a float again, which is exact.
#pragma once

#include <cstring>

#include "kernels/simd/gemm.h"
#include "kernels/simd/pointwise.h"

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

// As vectors do it, which by AVX512-BF16 flush subnormal numbers to zero.
inline float paired(float earlier, float later) { return pairs_across(splat(earlier), splat(later))[0]; }

// Number j of a row of pairs.
inline float widened(const float* pairs, Index j) {
  std::uint32_t bits;
  std::memcpy(&bits, pairs + j / 2, sizeof bits);
  bits = j % 2 == 0 ? bits << 16 : bits & 0xFFFF0000U;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// The numbers in the lower halves of words, and in the upper ones.
inline Floats earlier(Floats pairs) { return (Floats)((Words)pairs << 16); }
inline Floats later(Floats pairs) { return (Floats)((Words)pairs & -0x10000); }

// out[q] = (x[2q], x[2q+1]) for q < k/2; an odd last one is paired with zero.
inline void pack_along(Index k, const float* x, float* out) {
  constexpr Index count = lanes<float>;
  Index p = 0;
  for (; p + 2 * count <= k; p += 2 * count) {
    store(out + p / 2, pairs_along(load(x + p), load(x + p + count)));
  }
  for (; p < k; p += 2) out[p / 2] = paired(x[p], p + 1 < k ? x[p + 1] : 0);
}

// The lanes from `first` on, half as many.
template <std::size_t first, class V, std::size_t... i>
inline auto half_of(V v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(first + i)...);
}

struct Pairs {
  static constexpr Index steps = 2;
  static Floats in_all_lanes(const float* x) {
    std::int32_t bits;  // as a number it could be a signalling NaN, and would not survive arithmetic
    std::memcpy(&bits, x, sizeof bits);
    return (Floats)(Words{} + bits);
  }
  static Floats multiply_add(Floats sum, Floats x, Floats y) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
#else
    return sum + earlier(x) * earlier(y) + later(x) * later(y);
#endif
  }
  static void round_row(Index n, const float* row, float* pairs) { pack_along(n, row, pairs); }
  static Floats along(Floats first, Floats second) { return pairs_along(first, second); }
  static Floats across(Floats earlier, Floats later) { return pairs_across(earlier, later); }
  // The pairs of steps side by side in a, and in b.
  static void put_along(Floats a, Floats b, float* a_pairs, float* b_pairs) {
    typedef float Half __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES / 2), aligned(4), may_alias));
    constexpr auto half = std::make_index_sequence<lanes<float> / 2>();
    const Floats both = pairs_along(a, b);
    *reinterpret_cast<Half*>(a_pairs) = half_of<0>(both, half);
    *reinterpret_cast<Half*>(b_pairs) = half_of<lanes<float> / 2>(both, half);
  }
};

// out[j] = (x[j], next[j]) for n columns; `next` null: zeros.
inline void pack_across(Index n, const float* x, const float* next, float* out) {
  for_each_vector<float>(n, [&](Index j, auto part) {
    part.put(out + j, pairs_across(part.get(x + j), next != nullptr ? part.get(next + j) : Floats{}));
  });
}

// The same from rows that are already rounded, where columns j and j + 1 share a word.
inline void pack_across_rounded(Index n, const float* x, const float* next, float* out) {
  typedef std::int16_t Halves __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));
  constexpr Index count = lanes<float>;
  constexpr auto half = std::make_index_sequence<2 * count>();
  Index j = 0;
  for (; j + 2 * count <= n; j += 2 * count) {
    const Halves a = (Halves)load(x + j / 2);
    const Halves b = next != nullptr ? (Halves)load(next + j / 2) : Halves{};
    store(out + j, (Floats)interleave_low(a, b, half));
    store(out + j + count, (Floats)interleave_high(a, b, half));
  }
  for (; j < n; ++j) out[j] = paired(widened(x, j), next != nullptr ? widened(next, j) : 0);
}

// Calls body(row, next row or null, pair) for each pair of rows of X, of which there are k.
template <class Body>
inline void each_pair_of_rows(Index k, const Operand<float>& x, Body&& body) {
  const float* row = x.data;
  for (Index p = 0; p < k / 2; ++p, row += 2 * x.ld) body(row, row + x.ld, p);
  if (k % 2 != 0) body(row, static_cast<const float*>(nullptr), k / 2);
}

inline void pack_left_pairs(Index m, Index k, const Operand<float>& a, float* out, Index stride) {
  if (!a.transposed) {
    for (Index i = 0; i < m; ++i) pack_along(k, a.data + i * a.ld, out + i * stride);
  } else if (a.rounded) {
    each_pair_of_rows(k, a, [&](const float* row, const float* next, Index p) {
      pack_across_rounded(m, row, next, out + p * stride);
    });
  } else {
    each_pair_of_rows(k, a, [&](const float* row, const float* next, Index p) {
      pack_across(m, row, next, out + p * stride);
    });
  }
}

inline void pack_panel_pairs(Index k, Index n, const Operand<float>& b, float* panel) {
  constexpr Index cols = tile_cols<float>;
  if (!b.transposed) {
    const auto pack_rows = [&](Index row_numbers, auto pack) {
      each_pair_of_rows(k, b, [&](const float* row, const float* next, Index p) {
        prefetch_row(row_numbers, row + prefetch_distance * b.ld);
        prefetch_row(row_numbers, row + (prefetch_distance + 1) * b.ld);
        float* pairs = panel + p * cols;
        if (n == cols) return pack(cols, row, next, pairs);  // no loop is left of it
        pack(n, row, next, pairs);
        for (Index j = n; j < cols; ++j) pairs[j] = 0;
      });
    };
    if (b.rounded) return pack_rows(cols / 2, [](auto... x) { pack_across_rounded(x...); });
    return pack_rows(cols, [](auto... x) { pack_across(x...); });
  }
  if (b.rounded) return pack_transposed((k + 1) / 2, n, b.data, b.ld, panel);
  // Rows of B first become rows of pairs, then columns of the panel.
  constexpr Index most = tile_depth;
  float pairs[lanes<float> * most];
  for (Index j = 0; j < cols; j += lanes<float>) {
    const Index left = n - j < 0 ? 0 : n - j, count = left < lanes<float> ? left : lanes<float>;
    for (Index row = 0; row < count; ++row) {
      prefetch_row(2 * lanes<float>, b.data + (j + row + prefetch_distance) * b.ld);
      pack_along(k, b.data + (j + row) * b.ld, pairs + row * most);
    }
    pack_transposed_strip((k + 1) / 2, count, pairs, most, panel + j);
  }
}

// --- rows that stay rounded (kernels/rounded.h) -----------------------------------------------------------

inline void widen(Index n, const float* rounded, float* out) {
  constexpr Index count = lanes<float>;
  constexpr auto lane = std::make_index_sequence<count>();
  Index j = 0;
  for (; j + 2 * count <= n; j += 2 * count) {
    const Floats pairs = load(rounded + j / 2);
    store(out + j, interleave_low(earlier(pairs), later(pairs), lane));
    store(out + j + count, interleave_high(earlier(pairs), later(pairs), lane));
  }
  for (; j < n; ++j) out[j] = widened(rounded, j);
}

inline void activate(ActivationKind kind, Index n, const float* x, float* y, float* derivative) {
  constexpr Index count = lanes<float>;
  const auto apply = [&](auto function) {
    Index j = 0;
    for (; j + 2 * count <= n; j += 2 * count) {
      const ValueAndDerivative a = function(load(x + j)), b = function(load(x + j + count));
      store(y + j / 2, pairs_along(a.value, b.value));
      store(derivative + j / 2, pairs_along(a.derivative, b.derivative));
    }
    for (; j < n; j += 2) {
      const Floats two = load_part(x + j, j + 1 < n ? 2 : 1);
      const ValueAndDerivative at = function(two);
      y[j / 2] = paired(at.value[0], j + 1 < n ? at.value[1] : 0);
      derivative[j / 2] = paired(at.derivative[0], j + 1 < n ? at.derivative[1] : 0);
    }
  };
  if (kind == ActivationKind::gelu) return apply(gelu_approx);
  dispatch_activation(kind, apply);
}

inline void multiply_rounded(Index words, const float* x, const float* y, float* out) {
  for_each_vector<float>(words, [&](Index i, auto part) {
    const Floats a = part.get(x + i), b = part.get(y + i);
    part.put(out + i, pairs_across(earlier(a) * earlier(b), later(a) * later(b)));
  });
}

constexpr GemmKernel<float> gemm_bf16_kernel = {
    .rows = tile_rows,
    .cols = tile_cols<float>,
    .depth = tile_depth,
    .steps = 2,
    .pack_panel = pack_panel_pairs,
    .pack_left = pack_left_pairs,
    .multiply = multiply<float, Pairs>,
    .widen = widen,
    .activate = activate,
    .multiply_rounded = multiply_rounded,
    .causal_softmax = causal_softmax<float, Pairs>,
    .causal_softmax_backward = causal_softmax_backward<float, Pairs>,
};

}  // namespace normscope::NORMSCOPE_ISA
