// The register tiles of GEMM. The scheme: kernels/gemm/kernel.h. Compiled by kernels/isa/*.cpp.
//
// Every element of C is one chain of multiply-adds over k, cut only at multiples of KC. So its bits do not
// depend on which register tile, or which thread's share of C, it falls into.
#pragma once

#include <bit>

#include "core/scratch.h"
#include "kernels/gemm/pack.h"
#include "kernels/simd/softmax.h"

namespace normscope::NORMSCOPE_ISA {

// How packed elements are multiplied.
struct F32 {
  static constexpr Index k_pack = 1;
  static constexpr bool in_one_instruction = true;  // or, without FMA, in as few as there are
  static Vec broadcast(const float* x) { return splat(*x); }
  static Vec load_steps(const float* x) { return load(x); }  // k_pack * lanes steps of k
  static Vec multiply_add(Vec sum, Vec x, Vec y) { return sum + x * y; }
};

// Pairs: by one instruction where the processor has it (AVX512-BF16); elsewhere each half is made a float
// again, which is exact.
struct Bf16 {
  static constexpr Index k_pack = 2;
#if defined(__AVX512BF16__)
  static constexpr bool in_one_instruction = true;
#else
  static constexpr bool in_one_instruction = false;
#endif
  static Vec broadcast(const float* x) {
    std::uint32_t bits;  // as a number it could be a signalling NaN, and would not survive arithmetic
    std::memcpy(&bits, x, sizeof bits);
    return (Vec)(VecU32{} + bits);
  }
  static Vec load_steps(const float* x) { return cvt_pack(load(x), load(x + lanes)); }
  static Vec multiply_add(Vec sum, Vec x, Vec y) {
#if defined(__AVX512BF16__)
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
#else
    return sum + lo(x) * lo(y) + hi(x) * hi(y);
#endif
  }
};

// Rows of C in bands of at most MR and nearly equal height: 64 rows are 13 + 13 + 13 + 13 + 12, not 4 * 14
// + 8.
struct Bands {
  Index count, height, taller;  // the first so many have a row more

  explicit Bands(Index m)
      : count((m + tile_rows - 1) / tile_rows), height(m / count), taller(m - height * count) {}
  Index begin(Index band) const { return band * height + (band < taller ? band : taller); }
};

// Copies of up to max_count bands of A, each of at most KC packed elements a row.
struct BandCopies {
  static constexpr Index max_count = 8;
  static constexpr Index line = 64 / static_cast<Index>(sizeof(float));
  static constexpr Index stride = tile_depth + line;  // an odd number of lines: rows start in sets in turn
  static constexpr Index size = tile_rows * stride;   // of a copy
  float* data;                                        // copy after copy

  float* operator[](Index copy) const { return data + copy * size; }

  void copy_rows(Index copy, Index rows, Index k, const float* a, Index ld) const {
    for (Index i = 0; i < rows; ++i) {
      for (Index p = 0; p < k; ++p) (*this)[copy][i * stride + p] = a[i * ld + p];
    }
  }

  // Copies bands of a transposed A in memory order, so that each cache line is fetched once for all bands;
  // copy b is a dense (k, rows of the band). Whole vectors may write past a row's end, which the next row
  // overwrites, and read past it, which stays inside A except in the last row.
  void copy_columns(const Bands& bands, Index first, Index count, Index k, const float* a, Index ld) const {
    Index begin[max_count], rows[max_count];
    for (Index b = 0; b < count; ++b) {
      begin[b] = bands.begin(first + b);
      rows[b] = bands.begin(first + b + 1) - begin[b];
    }
    const Index end = begin[count - 1] + rows[count - 1], by_vectors = ld >= lanes ? k - 1 : 0;
    for (Index p = 0; p < by_vectors; ++p) {
      for (Index i = begin[0]; i < end; i += line) __builtin_prefetch(a + (p + prefetch_distance) * ld + i);
      for (Index b = 0; b < count; ++b) {
        for (Index i = 0; i < rows[b]; i += lanes) {
          store((*this)[b] + p * rows[b] + i, load(a + p * ld + begin[b] + i));
        }
      }
    }
    for (Index p = by_vectors; p < k; ++p) {
      for (Index b = 0; b < count; ++b) {
        for (Index i = 0; i < rows[b]; ++i) (*this)[b][p * rows[b] + i] = a[p * ld + begin[b] + i];
      }
    }
  }
};

// A tile at the right edge of C, where whole vectors do not fit. Lane by lane the arithmetic of whole
// vectors.
[[gnu::noinline]] inline void store_edge_tile(Index rows, Index n, float* tile, Index stride,
                                              const TileOutput& out) {
  for (Index i = 0; i < rows; ++i) {
    float* sums = tile + i * stride;
    if (out.dtype == DType::bf16) {
      for (Index j = 0; j < n; ++j) sums[j] *= out.alpha;
      to_bf16(n, sums, static_cast<bf16*>(out.at(i, 0)));
      continue;
    }
    float* c = static_cast<float*>(out.c) + i * out.ldc;
    for (Index j = 0; j < n; ++j) {
      const float product = sums[j] * out.alpha;
      c[j] = out.beta == 0 ? product : c[j] * out.beta + product;
    }
  }
}

// One register tile: C (rows, n) from `rows` rows of A and one panel, n <= vectors*lanes.
template <class Product, Index rows, Index vectors, bool transposed>
void multiply_tile(Index n, Index k, const PackedA& packed_a, const PackedB& packed_b,
                   const TileOutput& out) {
  const float *a = packed_a.data, *b = packed_b.data;
  Vec sum[rows][vectors] = {};
  // Rows are reached from two pointers: the distances of all of them from one do not fit into the registers.
  constexpr Index half = (rows + 1) / 2;
  const float* a_lower = a + half * (transposed ? 1 : packed_a.stride);
  for (Index p = 0; p < k; ++p) {
    Vec y[vectors];
#pragma GCC unroll 2
    for (Index v = 0; v < vectors; ++v) y[v] = load(b + v * lanes);
#pragma GCC unroll 16
    for (Index i = 0; i < rows; ++i) {
      const float* from = i < half ? a : a_lower;
      const Index row = i < half ? i : i - half;
      const Vec x = Product::broadcast(from + row * (transposed ? 1 : packed_a.stride));
#pragma GCC unroll 2
      for (Index v = 0; v < vectors; ++v) sum[i][v] = Product::multiply_add(sum[i][v], x, y[v]);
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
  const bool to_bf16 = Product::k_pack == 2 && out.dtype == DType::bf16;
  float* c = static_cast<float*>(out.c);
  if (n < cols || (to_bf16 && vectors < 2)) {
    float tile[rows][cols];
    for_each_sum([&](Index i, Index j, Vec value) { store(tile[i] + j, value); });
    store_edge_tile(rows, n < cols ? n : cols, tile[0], cols, out);
  } else if (to_bf16) {
    if constexpr (vectors == 2) {
#pragma GCC unroll 16
      for (Index i = 0; i < rows; ++i) {
        const Vec first = sum[i][0] * alpha, second = sum[i][1] * alpha;
        store(pairs(static_cast<bf16*>(out.c) + i * ldc), cvt_pack(first, second));
      }
    }
  } else if (beta == 0) {
    for_each_sum([&](Index i, Index j, Vec value) { store(c + i * ldc + j, value * alpha); });
  } else {
    for_each_sum([&](Index i, Index j, Vec value) {
      float* at = c + i * ldc + j;
      store(at, load(at) * beta + value * alpha);
    });
  }
}

using TileFunction = void (*)(Index n, Index k, const PackedA&, const PackedB&, const TileOutput&);

// [r]: the tile of r+1 rows.
struct TileFunctions {
  TileFunction of_rows[tile_rows];
};

template <class Product, Index vectors, bool transposed, std::size_t... r>
constexpr TileFunctions tile_functions(std::index_sequence<r...>) {
  return {{multiply_tile<Product, static_cast<Index>(r) + 1, vectors, transposed>...}};
}

template <class Product, Index vectors, bool transposed>
constexpr TileFunctions tiles =
    tile_functions<Product, vectors, transposed>(std::make_index_sequence<tile_rows>());

// Prefetches the tile of C from (row, col) on while its sums are formed: C often lies in memory.
inline void prefetch_tile(Index rows, const TileOutput& out, Index row, Index col) {
  for (Index i = 0; i < rows; ++i) {
    const char* c = static_cast<const char*>(out.at(row + i, col));
    __builtin_prefetch(c, 1, 2);
    if (out.dtype == DType::real) __builtin_prefetch(c + 64, 1, 2);
  }
}

template <class Product>
void multiply(Index m, Index n, Index k, const PackedA& a, const PackedB& b, const TileOutput& out) {
  const TileFunctions& wide = a.transposed ? tiles<Product, 2, true> : tiles<Product, 2, false>;
  const TileFunctions& narrow = a.transposed ? tiles<Product, 1, true> : tiles<Product, 1, false>;
  // A is copied where reading it in place costs more: a transposed one of whose cache lines a narrow band
  // uses little, or whose rows are a power of two from 2 KiB on apart, so that they fall into few sets of the
  // cache; one whose rows are a multiple of 4 KiB apart, which fall into one set of the L1 cache, with room
  // for eight.
  constexpr Index min_panels = 8;
  const bool in_few_sets = a.stride >= 512 && std::has_single_bit(static_cast<std::size_t>(a.stride));
  const bool copy_columns =
      a.transposed && m > tile_rows && (tile_rows > 8 ? in_few_sets : n >= min_panels * tile_cols);
  const bool copy_rows = !a.transposed && tile_rows > 8 && a.stride % (64 * BandCopies::line) == 0;
  constexpr Index worth_prefetching = 48;  // a tile of fewer steps is done before its C could come
  const bool copies_a = copy_columns || copy_rows;
  const BandCopies copies{
      copies_a ? thread_scratch<float, BandCopies>(BandCopies::max_count * BandCopies::size) : nullptr};
  const Bands bands(m);
  for (Index band = 0; band < bands.count; ++band) {
    const Index copy = band % BandCopies::max_count, left = bands.count - band;
    const Index i = bands.begin(band), rows = bands.begin(band + 1) - i;
    PackedA a_band = a.from(i, 0);
    if (copy_columns && copy == 0) {
      copies.copy_columns(bands, band, left < copies.max_count ? left : copies.max_count, k, a.data,
                          a.stride);
    }
    if (copy_rows) copies.copy_rows(copy, rows, k, a_band.data, a.stride);
    if (copies_a) a_band = {copies[copy], copy_rows ? copies.stride : rows, a.transposed};
    for (Index j = 0; j < n; j += tile_cols) {
      if (k >= worth_prefetching) prefetch_tile(rows, out, i, j);
      const TileFunctions& functions = n - j > lanes ? wide : narrow;
      functions.of_rows[rows - 1](n - j, k, a_band, b.from(0, j / tile_cols), {out, i, j});
    }
  }
}

template <class Product>
void dot_rows(Index n, Index k, const float* x, const float* b, Index ldb, float* y) {
  constexpr Index rows_at_once = 4, steps = Product::k_pack * lanes;
  const Index whole = k / steps * steps;
  for (Index j = 0; j < n; j += rows_at_once) {
    const float* rows[rows_at_once];
    Vec sum[rows_at_once] = {};
    for (Index i = 0; i < rows_at_once; ++i) rows[i] = b + (j + i < n ? j + i : n - 1) * ldb;
    for (Index p = 0; p < whole; p += steps) {
      const Vec xs = Product::load_steps(x + p);
      for (Index i = 0; i < rows_at_once; ++i)
        sum[i] = Product::multiply_add(sum[i], xs, Product::load_steps(rows[i] + p));
    }
    if (whole < k) {
      const std::size_t bytes = static_cast<std::size_t>(k - whole) * sizeof(float);
      float last_x[steps] = {}, last[steps] = {};
      std::memcpy(last_x, x + whole, bytes);
      for (Index i = 0; i < rows_at_once; ++i) {
        std::memcpy(last, rows[i] + whole, bytes);
        sum[i] = Product::multiply_add(sum[i], Product::load_steps(last_x), Product::load_steps(last));
      }
    }
    for (Index i = 0; i < rows_at_once && j + i < n; ++i) y[j + i] = sum_lanes(sum[i]);
  }
}

// The sum of floats is also a factor, else the product of the other two would be formed once for all rounds.
template <class Product>
double multiply_add_chains(Index rounds) {
  constexpr Index chains = 2 * tile_rows;  // as many as a tile has sums: enough for two a cycle
  const float one = 1, half = 0.5f;
  const Vec x = Product::broadcast(&one), y = Product::broadcast(&half);
  Vec sum[chains];  // different ones and none a fixed point, else the compiler would see that some need no
                    // work
  for (Index i = 0; i < chains; ++i) sum[i] = splat(static_cast<float>(i + 3));
  for (Index round = 0; round < rounds; ++round) {
#pragma GCC unroll 28
    for (Vec& s : sum)
      s = Product::k_pack == 1 ? Product::multiply_add(x, s, y) : Product::multiply_add(s, x, y);
  }
  volatile float used = 0;
  for (const Vec& s : sum) used = used + sum_lanes(s);
  return static_cast<double>(rounds) * 2 * Product::k_pack * chains * lanes;
}

template <class Product>
constexpr GemmKernel gemm_kernel = {
    .mr = tile_rows,
    .nr = tile_cols,
    .kc = tile_depth,
    .k_pack = Product::k_pack,
    .pack_b = Product::k_pack == 2 ? pack_b_pairs : pack_b,
    .pack_a = Product::k_pack == 2 ? pack_a_pairs : nullptr,
    .multiply = multiply<Product>,
    .dot_rows = dot_rows<Product>,
    .multiply_add_chains = Product::in_one_instruction ? multiply_add_chains<Product> : nullptr,
    .causal_softmax = causal_softmax<Product::k_pack>,
    .causal_softmax_backward = causal_softmax_backward<Product::k_pack>,
};

constexpr Bf16Kernels bf16_kernels = {
    .gemm = gemm_kernel<Bf16>,
    .to_bf16 = to_bf16,
    .to_float = to_float,
    .multiply = multiply_bf16,
    .activate = activate_bf16,
};

}  // namespace normscope::NORMSCOPE_ISA
