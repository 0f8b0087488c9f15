// The native matrix product: register tiles, and the packing they need. The scheme: kernels/gemm_kernel.h.
//
// Every element of C is one chain of multiply-adds over k, cut only at multiples of `depth`. So its bits do
// not depend on which register tile, or which thread's share of C, it falls into.
#pragma once

#include <utility>

#include "kernels/gemm_kernel.h"
#include "kernels/simd/softmax.h"
#include "kernels/simd/vector.h"

namespace normscope::NORMSCOPE_ISA {

// The register tile: `tile_rows` by two vectors of accumulators; beside them live the two vectors of B, one
// number of A in all lanes, and without fused multiply-add a product.
#if NORMSCOPE_VECTOR_BYTES == 64 || defined(__aarch64__)
constexpr Index tile_rows = 14;  // of 32 registers
#else
constexpr Index tile_rows = 6;  // of 16
#endif
constexpr Index tile_vectors = 2;
template <class Real>
constexpr Index tile_cols = tile_vectors* lanes<Real>;

// Measured: 512 visits C less often than 256 or 384 and is up to 5 % faster where k is long; panels of B are
// streams from the L2 cache at any depth.
constexpr Index tile_depth = 512;

// --- packing ------------------------------------------------------------------------------------------

// Rows that are packed lie far apart, often on pages of their own, where no processor foresees the next:
// without a word ahead each one is waited for (3 % of a step at C 128, bf16). Past the last row it costs
// nothing.
constexpr Index prefetch_distance = 16;

template <class Real>
inline void prefetch_row(Index count, const Real* row) {
  for (Index i = 0; i < count; i += 64 / static_cast<Index>(sizeof(Real))) __builtin_prefetch(row + i);
}

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

// Transposes a square of vectors. Interleaving row r with row r + lanes/2 rotates the bits of the element's
// number (row, lane) by one; log2(lanes) times, and row and lane have changed places.
template <class Real>
inline void transpose(Vec<Real> (&square)[lanes<Real>]) {
  constexpr Index count = lanes<Real>;
  constexpr auto lane = std::make_index_sequence<count>();
#pragma GCC unroll 4
  for (Index step = 1; step < count; step *= 2) {
    Vec<Real> next[count];
#pragma GCC unroll 8
    for (Index r = 0; r < count / 2; ++r) {
      next[2 * r] = interleave_low(square[r], square[r + count / 2], lane);
      next[2 * r + 1] = interleave_high(square[r], square[r + count / 2], lane);
    }
#pragma GCC unroll 16
    for (Index r = 0; r < count; ++r) square[r] = next[r];
  }
}

// panel[p][j] = b[j][p] for `lanes` columns j of the panel, of which n exist.
template <class Real>
void pack_transposed_strip(Index k, Index n, const Real* b, Index ldb, Real* panel) {
  constexpr Index count = lanes<Real>, cols = tile_cols<Real>;
  Index p = 0;
  if (n == count) {
    for (; p + count <= k; p += count) {
      Vec<Real> square[count];
#pragma GCC unroll 16
      for (Index j = 0; j < count; ++j) square[j] = load(b + j * ldb + p);
      transpose<Real>(square);
#pragma GCC unroll 16
      for (Index i = 0; i < count; ++i) store(panel + (p + i) * cols, square[i]);
    }
  }
  for (; p < k; ++p) {
    for (Index j = 0; j < count; ++j) panel[p * cols + j] = j < n ? b[j * ldb + p] : Real(0);
  }
}

// The same for a whole panel of n columns.
template <class Real>
void pack_transposed(Index k, Index n, const Real* b, Index ldb, Real* panel) {
  for (Index j = 0; j < tile_cols<Real>; j += lanes<Real>) {
    const Index left = n - j < 0 ? 0 : n - j;
    pack_transposed_strip(k, left < lanes<Real> ? left : lanes<Real>, b + (left > 0 ? j * ldb : 0), ldb,
                          panel + j);
  }
}

template <class Real>
void pack_panel(Index k, Index n, const Operand<Real>& b, Real* panel) {
  constexpr Index cols = tile_cols<Real>;
  if (b.transposed) return pack_transposed(k, n, b.data, b.ld, panel);
  for (Index p = 0; p < k; ++p) {
    const Real* row = b.data + p * b.ld;
    if (n == cols) {
      prefetch_row(cols, row + prefetch_distance * b.ld);
      for (Index j = 0; j < cols; j += lanes<Real>) store(panel + p * cols + j, load(row + j));
    } else {
      for (Index j = 0; j < cols; ++j) panel[p * cols + j] = j < n ? row[j] : Real(0);
    }
  }
}

// A copy of one band of A: at most tile_rows rows and tile_depth steps.
template <class Real>
struct Band {
  static constexpr Index line = 64 / static_cast<Index>(sizeof(Real));
  static constexpr Index row_stride =
      tile_depth + line;  // an odd number of lines: rows start in sets in turn
  alignas(64) Real data[tile_rows * row_stride];

  void copy_rows(Index rows, Index k, const Real* a, Index ld) {
    for (Index i = 0; i < rows; ++i) {
      for (Index p = 0; p < k; ++p) data[i * row_stride + p] = a[i * ld + p];
    }
  }

  // Of a transposed A: (k, rows) dense. Whole vectors are stored in rising order, so that what they write
  // past their row is overwritten by the next; `left` numbers of each row of A may be read.
  void copy_columns(Index rows, Index k, Index left, const Real* a, Index ld) {
    for (Index p = 0; p < k; ++p) {
      for (Index i = 0; i < rows; i += lanes<Real>) {
        if (i + lanes<Real> <= left) {
          store(data + p * rows + i, load(a + p * ld + i));
        } else {
          for (Index j = i; j < rows; ++j) data[p * rows + j] = a[p * ld + j];
        }
      }
    }
  }
};

// --- the product ----------------------------------------------------------------------------------------

// A tile at the right edge of C, where whole vectors do not fit. Lane by lane the arithmetic of whole
// vectors.
template <class Product, class Real>
[[gnu::noinline]] void store_edge_tile(Index rows, Index n, Real* tile, Index stride,
                                       const TileOutput<Real>& out) {
  for (Index i = 0; i < rows; ++i) {
    if constexpr (Product::steps == 2) {
      if (out.rounded) {
        for (Index j = 0; j < n; ++j) tile[i * stride + j] *= out.alpha;
        Product::round_row(n, tile + i * stride, out.at(i, 0));
        continue;
      }
    }
    for (Index j = 0; j < n; ++j) {
      Real& c = out.c[i * out.ldc + j];
      const Real product = tile[i * stride + j] * out.alpha;
      c = out.beta == 0 ? product : c * out.beta + product;
    }
  }
}

// How stored numbers are multiplied. Plain: as they are.
template <class Real>
struct Plain {
  static constexpr Index steps = 1;
  static Vec<Real> in_all_lanes(const Real* x) { return splat(*x); }
  static Vec<Real> multiply_add(Vec<Real> sum, Vec<Real> x, Vec<Real> y) { return sum + x * y; }
};

// One register tile: C (rows, n) from `rows` rows of op(A) and one panel, n <= vectors*lanes.
template <class Real, class Product, Index rows, Index vectors, bool transposed>
void multiply_tile(Index n, Index k, const Real* a, Index a_stride, const Real* b, Index b_stride,
                   const TileOutput<Real>& out) {
  Vec<Real> sum[rows][vectors] = {};
  // Rows are reached from two pointers: the distances of all of them from one do not fit into the registers,
  // and fetching some from memory at each step costs 4 % of the product.
  constexpr Index half = (rows + 1) / 2;
  const Real* a_lower = a + half * (transposed ? 1 : a_stride);
  for (Index p = 0; p < k; ++p) {
    Vec<Real> y[vectors];
#pragma GCC unroll 2
    for (Index v = 0; v < vectors; ++v) y[v] = load(b + v * lanes<Real>);
#pragma GCC unroll 16
    for (Index i = 0; i < rows; ++i) {
      const Real* from = i < half ? a : a_lower;
      const Index row = i < half ? i : i - half;
      const Vec<Real> x = Product::in_all_lanes(from + row * (transposed ? 1 : a_stride));
#pragma GCC unroll 2
      for (Index v = 0; v < vectors; ++v) sum[i][v] = Product::multiply_add(sum[i][v], x, y[v]);
    }
    a += transposed ? a_stride : 1;
    a_lower += transposed ? a_stride : 1;
    b += b_stride;
  }

  // The tile leaves the registers here: the place for what is done once to each element of C.
  const auto each_sum = [&](auto put) {
#pragma GCC unroll 16
    for (Index i = 0; i < rows; ++i) {
#pragma GCC unroll 2
      for (Index v = 0; v < vectors; ++v) put(i, v * lanes<Real>, sum[i][v]);
    }
  };
  constexpr Index cols = vectors * lanes<Real>;
  if (n < cols || (out.rounded && vectors < 2)) {
    Real tile[rows][cols];
    each_sum([&](Index i, Index j, Vec<Real> value) { store(tile[i] + j, value); });
    store_edge_tile<Product>(rows, n < cols ? n : cols, tile[0], cols, out);
  } else if (out.rounded) {
    if constexpr (vectors == 2 && Product::steps == 2) {
#pragma GCC unroll 16
      for (Index i = 0; i < rows; ++i) {
        const Vec<Real> first = sum[i][0] * out.alpha, second = sum[i][1] * out.alpha;
        store(out.at(i, 0), Product::along(first, second));
      }
    }
  } else if (out.beta == 0) {
    each_sum([&](Index i, Index j, Vec<Real> value) {
      store(out.c + i * out.ldc + j, Vec<Real>(value * out.alpha));
    });
  } else {
    each_sum([&](Index i, Index j, Vec<Real> value) {
      Real* c = out.c + i * out.ldc + j;
      store(c, Vec<Real>(load(c) * out.beta + value * out.alpha));
    });
  }
}

template <class Real>
using TileFunction = void (*)(Index n, Index k, const Real* a, Index a_stride, const Real* b, Index b_stride,
                              const TileOutput<Real>& out);

// [r]: the tile of r+1 rows.
template <class Real>
struct TileFunctions {
  TileFunction<Real> of_rows[tile_rows];
};

template <class Real, class Product, Index vectors, bool transposed, std::size_t... r>
constexpr TileFunctions<Real> tile_functions(std::index_sequence<r...>) {
  return {{multiply_tile<Real, Product, static_cast<Index>(r) + 1, vectors, transposed>...}};
}

template <class Real, class Product, Index vectors, bool transposed>
constexpr TileFunctions<Real> tiles =
    tile_functions<Real, Product, vectors, transposed>(std::make_index_sequence<tile_rows>());

// Asks for the tile of C from (row, col) on while its sums are formed: C often lies in memory, and its stores
// would be waited for (1.6 % of a step at C 128, bf16).
template <class Real>
inline void prefetch_tile(Index rows, const TileOutput<Real>& out, Index row, Index col) {
  constexpr Index line = 64 / static_cast<Index>(sizeof(Real));
  for (Index i = 0; i < rows; ++i) {
    const Real* c = out.at(row + i, col);
    __builtin_prefetch(c, 1, 2);
    if (!out.rounded) __builtin_prefetch(c + line, 1, 2);
  }
}

template <class Real, class Product>
void multiply(Index m, Index n, Index k, const LeftOperand<Real>& a, const RightOperand<Real>& b,
              const TileOutput<Real>& out) {
  const TileFunctions<Real>& wide =
      a.transposed ? tiles<Real, Product, 2, true> : tiles<Real, Product, 2, false>;
  const TileFunctions<Real>& narrow =
      a.transposed ? tiles<Real, Product, 1, true> : tiles<Real, Product, 1, false>;
  // A band is copied where reading it in place costs more. A transposed one uses only a part of each cache
  // line it touches: copied if enough panels read it. Rows a multiple of 4 KiB apart fall into one set of the
  // L1 cache, which has room for eight.
  const bool copy_columns = a.transposed && n >= 16 * tile_cols<Real>;
  const bool copy_rows = !a.transposed && tile_rows > 8 && a.stride % (64 * Band<Real>::line) == 0;
  Band<Real> copy;
  // Bands of nearly equal height: 64 rows are 13 + 13 + 13 + 13 + 12, not 4 * 14 + 8.
  const Index bands = (m + tile_rows - 1) / tile_rows;
  for (Index band = 0, i = 0; band < bands; ++band) {
    const Index rows = m / bands + (band < m % bands ? 1 : 0);
    const Real* a_band = a.data + i * (a.transposed ? 1 : a.stride);
    Index a_stride = a.stride;
    if (copy_columns) copy.copy_columns(rows, k, m - i, a_band, a.stride);
    if (copy_rows) copy.copy_rows(rows, k, a_band, a.stride);
    if (copy_columns || copy_rows) {
      a_band = copy.data;
      a_stride = copy_rows ? copy.row_stride : rows;
    }
    for (Index j = 0; j < n; j += tile_cols<Real>) {
      prefetch_tile(rows, out, i, j);
      const TileFunctions<Real>& functions = n - j > lanes<Real> ? wide : narrow;
      functions.of_rows[rows - 1](n - j, k, a_band, a_stride, b.data + j / tile_cols<Real> * b.panel_size,
                                  b.stride, {out.alpha, out.beta, out.at(i, j), out.ldc, out.rounded});
    }
    i += rows;
  }
}

template <class Real>
constexpr GemmKernel<Real> gemm_kernel = {
    .rows = tile_rows,
    .cols = tile_cols<Real>,
    .depth = tile_depth,
    .steps = 1,
    .pack_panel = pack_panel<Real>,
    .pack_left = nullptr,
    .multiply = multiply<Real, Plain<Real>>,
    .widen = nullptr,
    .activate = nullptr,
    .multiply_rounded = nullptr,
    .causal_softmax = causal_softmax<Real, Plain<Real>>,
    .causal_softmax_backward = causal_softmax_backward<Real, Plain<Real>>,
};

}  // namespace normscope::NORMSCOPE_ISA
