// Packing of GEMM's operands (kernels/gemm/kernel.h), and the conversions between float and bf16 that it is
// made of. Compiled by kernels/isa/*.cpp, as kernels/simd is.
#pragma once

#include <cstring>
#include <utility>

#include "kernels/gemm/kernel.h"
#include "kernels/simd/pointwise.h"
#include "kernels/simd/vector.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace normscope::NORMSCOPE_ISA {

typedef std::uint32_t VecU32 __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));
typedef std::uint16_t VecU16 __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));
constexpr auto each_lane = std::make_index_sequence<lanes>();

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

template <class T>
inline void prefetch_row(Index count, const T* row) {
  for (Index i = 0; i < count; i += 64 / static_cast<Index>(sizeof(T))) __builtin_prefetch(row + i);
}

// --- shuffles

// a0, b0, a1, b1, ... of the first halves of a and b; of the second.
template <class V, std::size_t... i>
inline V interleave_low(V a, V b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (i / 2 + (i % 2) * sizeof...(i))...);
}
template <class V, std::size_t... i>
inline V interleave_high(V a, V b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (sizeof...(i) / 2 + i / 2 + (i % 2) * sizeof...(i))...);
}

// Elements first, first + 2, ... of a and b in a row.
template <std::size_t first, class V, std::size_t... i>
inline V every_other(V a, V b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (2 * i + first)...);
}

// 0, n/2, 1, n/2 + 1, ... of n elements.
template <class V, std::size_t... i>
inline V interleave_halves(V v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(i / 2 + i % 2 * (sizeof...(i) / 2))...);
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

// --- bf16

// The bits of x rounded to bf16 (to nearest, ties to even), in the low half of each lane. NaN stays NaN.
inline VecU32 bf16_bits(Vec x) {
  const VecU32 bits = (VecU32)x;
  const VecU32 nearest = bits + 0x7FFF + ((bits >> 16) & 1);
  const VecU32 nan = bits | 0x400000;
  const VecU32 chosen = x == x ? nearest : nan;
  return chosen >> 16;
}

// The pairs (lo, hi) of bf16, lane by lane: two steps of k of as many columns.
inline Vec pack_k_pairs(Vec lo, Vec hi) {
#if defined(__AVX512BF16__)
  const VecU16 both = (VecU16)_mm512_cvtne2ps_pbh((__m512)hi, (__m512)lo);
  return (Vec)interleave_halves(both, std::make_index_sequence<2 * lanes>());
#else
  return (Vec)(bf16_bits(lo) | (bf16_bits(hi) << 16));
#endif
}

// a and then b as one row of bf16.
inline Vec cvt_pack(Vec a, Vec b) {
#if defined(__AVX512BF16__)
  return (Vec)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
#else
  return pack_k_pairs(every_other<0>(a, b, each_lane), every_other<1>(a, b, each_lane));
#endif
}

// The numbers in the low halves of lanes, and in the high ones.
inline Vec lo(Vec pairs) { return (Vec)((VecU32)pairs << 16); }
inline Vec hi(Vec pairs) { return (Vec)((VecU32)pairs & 0xFFFF0000U); }

// One pair, as vectors make it, which by AVX512-BF16 flush subnormal numbers to zero.
inline float pack_pair(float a, float b) { return pack_k_pairs(splat(a), splat(b))[0]; }
inline float to_float(bf16 x) { return lo((Vec)(VecU32{} + x.bits))[0]; }

inline const float* pairs(const bf16* x) { return reinterpret_cast<const float*>(x); }
inline float* pairs(bf16* x) { return reinterpret_cast<float*>(x); }
inline void store_pair(bf16* out, float pair) { std::memcpy(out, &pair, sizeof pair); }

inline void to_bf16(Index n, const float* x, bf16* out) {
  Index j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    store(pairs(out + j), cvt_pack(load(x + j), load(x + j + lanes)));
  }
  for (; j < n; j += 2) store_pair(out + j, pack_pair(x[j], j + 1 < n ? x[j + 1] : 0));
}

inline void to_bf16(const Matrix<float>& x, const Matrix<float>& out) {
  for (Index i = 0; i < x.rows; ++i) to_bf16(x.cols, x.value + i * x.ld, out.half + i * out.ld);
}

inline void to_float(Index n, const bf16* x, float* out) {
  Index j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    const Vec both = load(pairs(x + j));
    store(out + j, interleave_low(lo(both), hi(both), each_lane));
    store(out + j + lanes, interleave_high(lo(both), hi(both), each_lane));
  }
  for (; j < n; ++j) out[j] = to_float(x[j]);
}

inline void multiply_bf16(Index n, const bf16* x, const bf16* y, bf16* out) {
  for_each_vector(n / 2, [&](Index i, auto part) {
    const Vec a = part.get(pairs(x) + i), b = part.get(pairs(y) + i);
    part.put(pairs(out) + i, pack_k_pairs(lo(a) * lo(b), hi(a) * hi(b)));
  });
}

inline void activate_bf16(Activation kind, Index n, const float* x, bf16* y, bf16* derivative) {
  const auto apply = [&](auto function) {
    Index j = 0;
    for (; j + 2 * lanes <= n; j += 2 * lanes) {
      const auto a = function(load(x + j)), b = function(load(x + j + lanes));
      store(pairs(y + j), cvt_pack(a.value, b.value));
      store(pairs(derivative + j), cvt_pack(a.derivative, b.derivative));
    }
    for (; j < n; j += 2) {
      const bool two = j + 1 < n;
      const auto at = function(Part{two ? 2 : 1}.get(x + j));
      store_pair(y + j, pack_pair(at.value[0], two ? at.value[1] : 0));
      store_pair(derivative + j, pack_pair(at.derivative[0], two ? at.derivative[1] : 0));
    }
  };
  if (kind == Activation::gelu) return apply([](Vec v) { return gelu_approx(v); });
  dispatch_activation(kind, apply);
}

// --- B

// panel[p][j] = rows[j][p] for the n columns j of the panel that exist, n <= lanes, and zeros past them.
inline void pack_transposed_strip(Index k, Index n, const float* rows, Index ld, float* panel) {
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
#pragma GCC unroll 16
      for (Index i = 0; i < lanes; ++i) store(panel + (p + i) * tile_cols, square[i]);
    }
  }
  for (; p < k; ++p) {
    for (Index j = 0; j < lanes; ++j) panel[p * tile_cols + j] = j < n ? rows[j * ld + p] : 0;
  }
}

// Calls strip(count, first column) for the vectors of columns of a panel, of whose columns n exist.
template <class Strip>
inline void for_each_strip(Index n, Strip&& strip) {
  for (Index j = 0; j < tile_cols; j += lanes) {
    const Index left = n - j;
    left <= 0 ? strip(Index{0}, Index{0}, j) : strip(left < lanes ? left : lanes, j, j);
  }
}

inline void pack_transposed(Index k, Index n, const float* rows, Index ld, float* panel) {
  for_each_strip(n, [&](Index count, Index row, Index j) {
    pack_transposed_strip(k, count, rows + row * ld, ld, panel + j);
  });
}

inline void pack_b(const Matrix<float>& b, float* panel) {
  const Index k = b.rows, n = b.cols;
  if (b.transposed) return pack_transposed(k, n, b.value, b.ld, panel);
  for (Index p = 0; p < k; ++p) {
    const float* row = b.value + p * b.ld;
    if (n == tile_cols) {
      prefetch_row(tile_cols, row + prefetch_distance * b.ld);
      for (Index j = 0; j < tile_cols; j += lanes) store(panel + p * tile_cols + j, load(row + j));
    } else {
      for (Index j = 0; j < tile_cols; ++j) panel[p * tile_cols + j] = j < n ? row[j] : 0;
    }
  }
}

// --- pairs of bf16

// out[j] = (x[j], next[j]) for n columns of two rows; `next` null: zeros.
inline void pack_row_pair(Index n, const float* x, const float* next, float* out) {
  for_each_vector(n, [&](Index j, auto part) {
    part.put(out + j, pack_k_pairs(part.get(x + j), next != nullptr ? part.get(next + j) : Vec{}));
  });
}
inline void pack_row_pair(Index n, const bf16* x, const bf16* next, float* out) {
  constexpr auto each_half = std::make_index_sequence<2 * lanes>();
  Index j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    const VecU16 a = (VecU16)load(pairs(x + j)),
                 b = next != nullptr ? (VecU16)load(pairs(next + j)) : VecU16{};
    store(out + j, (Vec)interleave_low(a, b, each_half));
    store(out + j + lanes, (Vec)interleave_high(a, b, each_half));
  }
  for (; j < n; ++j) out[j] = pack_pair(to_float(x[j]), next != nullptr ? to_float(next[j]) : 0);
}

// Calls body(row, next row or null, pair) for each pair of the k rows from `row` on.
template <class T, class Body>
inline void for_each_row_pair(Index k, const T* row, Index ld, Body&& body) {
  for (Index p = 0; p < k / 2; ++p, row += 2 * ld) body(row, row + ld, p);
  if (k % 2 != 0) body(row, static_cast<const T*>(nullptr), k / 2);
}

inline void pack_a_pairs(const Matrix<float>& a, float* out, Index stride) {
  const auto pack_columns = [&](const auto* rows) {
    for_each_row_pair(a.cols, rows, a.ld, [&](const auto* row, const auto* next, Index p) {
      pack_row_pair(a.rows, row, next, out + p * stride);
    });
  };
  if (a.transposed) return a.half != nullptr ? pack_columns(a.half) : pack_columns(a.value);
  to_bf16(a, {reinterpret_cast<bf16*>(out), a.rows, a.cols, 2 * stride});
}

template <class T>
inline void pack_b_rows(Index k, Index n, const T* rows, Index ld, float* panel) {
  for_each_row_pair(k, rows, ld, [&](const T* row, const T* next, Index p) {
    prefetch_row(tile_cols, row + prefetch_distance * ld);
    prefetch_row(tile_cols, row + (prefetch_distance + 1) * ld);
    float* out = panel + p * tile_cols;
    if (n == tile_cols) return pack_row_pair(tile_cols, row, next, out);  // no loop is left of it
    pack_row_pair(n, row, next, out);
    for (Index j = n; j < tile_cols; ++j) out[j] = 0;
  });
}

inline void pack_b_pairs(const Matrix<float>& b, float* panel) {
  const Index k = b.rows, n = b.cols;
  if (!b.transposed) {
    return b.half != nullptr ? pack_b_rows(k, n, b.half, b.ld, panel)
                             : pack_b_rows(k, n, b.value, b.ld, panel);
  }
  if (b.half != nullptr) return pack_transposed((k + 1) / 2, n, pairs(b.half), b.ld / 2, panel);
  // Rows of B first become rows of pairs, then columns of the panel.
  float row_pairs[lanes * tile_depth];
  for_each_strip(n, [&](Index count, Index first, Index j) {
    for (Index i = 0; i < count; ++i) {
      const float* row = b.value + (first + i) * b.ld;
      prefetch_row(2 * lanes, row + prefetch_distance * b.ld);
      to_bf16(k, row, reinterpret_cast<bf16*>(row_pairs + i * tile_depth));
    }
    pack_transposed_strip((k + 1) / 2, count, row_pairs, tile_depth, panel + j);
  });
}

}  // namespace normscope::NORMSCOPE_ISA
