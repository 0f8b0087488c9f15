// The register tiles of GEMM. The scheme: kernels/gemm/kernel.h. Compiled by kernels/isa/*.cpp.
//
// Every element of C is one chain of multiply-adds over k, cut only at multiples of KC. So its bits do not
// depend on which register tile, or which thread's share of C, it falls into.
#pragma once

#include "kernels/gemm/pack.h"

namespace normscope::NORMSCOPE_ISA {

inline Vec load_element(const float* p) { return load(p); }
inline Vec broadcast(const float* p) { return splat(*p); }
inline Vec multiply_add(Vec sum, Vec x, Vec y, const float*) { return sum + x * y; }

#if defined(__AVX512BF16__)
inline Vec load_element(const Bf16Pair* p) { return (Vec) * reinterpret_cast<const VecPairs*>(p); }
inline Vec broadcast(const Bf16Pair* p) { return (Vec)(VecPairs{} + *p); }
inline Vec multiply_add(Vec sum, Vec x, Vec y, const Bf16Pair*) {
  return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
}
#endif

// Rows of C in bands of at most MR and nearly equal height: 64 rows are 13 + 13 + 13 + 13 + 12, not 4 * 14
// + 8.
struct Bands {
  Index count, height, taller;  // the first so many have a row more

  explicit Bands(Index m)
      : count((m + tile_rows - 1) / tile_rows), height(m / count), taller(m - height * count) {}
  Index begin(Index band) const { return band * height + (band < taller ? band : taller); }
};

// A tile at the right edge of C, where whole vectors do not fit. Lane by lane the arithmetic of whole
// vectors.
[[gnu::noinline]] inline void store_edge_tile(Index rows, Index n, const float* tile, Index stride,
                                              const TileOutput& out) {
  for (Index i = 0; i < rows; ++i) {
    float* c = out.c + i * out.ldc;
    for (Index j = 0; j < n; ++j) {
      const float product = tile[i * stride + j] * out.alpha;
      c[j] = out.beta == 0 ? product : c[j] * out.beta + product;
    }
  }
}

// One register tile: C (rows, n) from `rows` rows of A and one panel, n <= vectors*lanes.
template <class Element, Index rows, Index vectors, bool transposed>
void multiply_tile(Index n, Index k, const PackedA<Element>& packed_a, const PackedB<Element>& packed_b,
                   const TileOutput& out) {
  const Element *a = packed_a.data, *b = packed_b.data;
  Vec sum[rows][vectors] = {};
  // Rows are reached from two pointers: the distances of all of them from one do not fit into the registers.
  constexpr Index half = (rows + 1) / 2;
  const Element* a_lower = a + half * (transposed ? 1 : packed_a.stride);
  for (Index p = 0; p < k; ++p) {
    Vec y[vectors];
#pragma GCC unroll 2
    for (Index v = 0; v < vectors; ++v) y[v] = load_element(b + v * lanes);
#pragma GCC unroll 16
    for (Index i = 0; i < rows; ++i) {
      const Element* from = i < half ? a : a_lower;
      const Index row = i < half ? i : i - half;
      const Vec x = broadcast(from + row * (transposed ? 1 : packed_a.stride));
#pragma GCC unroll 2
      for (Index v = 0; v < vectors; ++v) sum[i][v] = multiply_add(sum[i][v], x, y[v], from);
    }
    a += transposed ? packed_a.stride : 1;
    a_lower += transposed ? packed_a.stride : 1;
    b += packed_b.stride;
  }

  // The tile leaves the registers here: the place for what is done once to each element of C.
  const auto for_each_sum = [&](auto put) {
#pragma GCC unroll 16
    for (Index i = 0; i < rows; ++i) {
#pragma GCC unroll 2
      for (Index v = 0; v < vectors; ++v) put(i, v * lanes, sum[i][v]);
    }
  };
  constexpr Index cols = vectors * lanes;
  const float alpha = out.alpha, beta = out.beta;  // read once, not after each store
  const Index ldc = out.ldc;
  float* c = out.c;
  if (n < cols) {
    float tile[rows][cols];
    for_each_sum([&](Index i, Index j, Vec value) { store(tile[i] + j, value); });
    store_edge_tile(rows, n, tile[0], cols, out);
  } else if (beta == 0) {
    for_each_sum([&](Index i, Index j, Vec value) { store(c + i * ldc + j, value * alpha); });
  } else {
    for_each_sum([&](Index i, Index j, Vec value) {
      float* at = c + i * ldc + j;
      store(at, load(at) * beta + value * alpha);
    });
  }
}

template <class Element>
using TileFunction = void (*)(Index n, Index k, const PackedA<Element>&, const PackedB<Element>&,
                              const TileOutput&);

// [r]: the tile of r+1 rows.
template <class Element>
struct TileFunctions {
  TileFunction<Element> of_rows[tile_rows];
};

template <class Element, Index vectors, bool transposed, std::size_t... r>
constexpr TileFunctions<Element> tile_functions(std::index_sequence<r...>) {
  return {{multiply_tile<Element, static_cast<Index>(r) + 1, vectors, transposed>...}};
}

template <class Element, Index vectors, bool transposed>
constexpr TileFunctions<Element> tiles =
    tile_functions<Element, vectors, transposed>(std::make_index_sequence<tile_rows>());

// Prefetches a tile of C while its sums are formed: C often lies in memory.
inline void prefetch_tile(Index rows, const TileOutput& out) {
  for (Index i = 0; i < rows; ++i) {
    __builtin_prefetch(out.c + i * out.ldc, 1, 2);
    __builtin_prefetch(out.c + i * out.ldc + 16, 1, 2);
  }
}

template <class Element>
void multiply(Index m, Index n, Index k, const PackedA<Element>& a, const PackedB<Element>& b,
              const TileOutput& out) {
  const TileFunctions<Element>& wide = a.transposed ? tiles<Element, 2, true> : tiles<Element, 2, false>;
  const TileFunctions<Element>& narrow = a.transposed ? tiles<Element, 1, true> : tiles<Element, 1, false>;
  constexpr Index worth_prefetching = 48;  // a tile of fewer steps is done before its C could come
  const Bands bands(m);
  for (Index band = 0; band < bands.count; ++band) {
    const Index i = bands.begin(band), rows = bands.begin(band + 1) - i;
    const PackedA<Element> a_band = a.from(i, 0);
    for (Index j = 0; j < n; j += tile_cols) {
      const TileOutput tile(out, i, j);
      if (k >= worth_prefetching) prefetch_tile(rows, tile);
      const TileFunctions<Element>& functions = n - j > lanes ? wide : narrow;
      functions.of_rows[rows - 1](n - j, k, a_band, b.from(0, j / tile_cols), tile);
    }
  }
}

}  // namespace normscope::NORMSCOPE_ISA
