// Packing of GEMM's operands and the register tiles that multiply them. The scheme: kernels/gemm/kernel.h.
// Compiled by kernels/isa/*.cpp, as kernels/simd is.
//
// Each element of C is one chain of multiply-adds over k, cut at the blocks of k, which depend on the shape
// alone (choose_kc() in schedule.cpp). So its bits do not depend on the register tile, or on the thread's
// part of C, that it falls into.
#pragma once

#include <utility>

#include "core/scratch.h"
#include "kernels/gemm/kernel.h"
#include "kernels/simd/vector.h"

namespace normscope::NORMSCOPE_NAMESPACE {

// --- packing ---

// The register tile is MR rows by two vectors of accumulators. The other registers hold the two vectors of B,
// one number of A in all lanes, and a product if there is no fused multiply-add.
#if NORMSCOPE_VECTOR_BYTES == 64 || defined(__aarch64__)
constexpr Index MR = 14;  // 32 registers
#else
constexpr Index MR = 6;  // 16 registers
#endif
constexpr Index NR = 2 * lanes;

// KC: large, since B streams from the L2 cache whatever its depth, and C is read and written once a block of
// k.
constexpr Index KC = 512;

// The distance, in rows, of a prefetch during packing and copying, and of a transposed A that is read in
// place. These read a few cache lines of a row, then of the next, which hardware prefetchers follow badly. A
// prefetch past the end of an operand is harmless.
constexpr Index prefetch_distance = 16;

constexpr auto each_lane = std::make_index_sequence<lanes>();

// The elements a[first], b[first], a[first + 1], b[first + 1], ... of half a vector each.
template <Index first, std::size_t... i>
inline Vec interleave(Vec a, Vec b, std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (first + i / 2 + (i % 2) * lanes)...);
}

// Transpose a square of vectors, in log2(lanes) rounds. Each round interleaves row r with row r + lanes/2
// into rows 2r and 2r + 1. With 4 lanes:
//
//   00 01 02 03        00 20 01 21        00 10 20 30
//   10 11 12 13   ->   02 22 03 23   ->   01 11 21 31
//   20 21 22 23        10 30 11 31        02 12 22 32
//   30 31 32 33        12 32 13 33        03 13 23 33
inline void transpose(Vec (&square)[lanes]) {
#pragma GCC unroll 4
  for (Index step = 1; step < lanes; step *= 2) {
    Vec next[lanes];
#pragma GCC unroll 8
    for (Index r = 0; r < lanes / 2; ++r) {
      next[2 * r] = interleave<0>(square[r], square[r + lanes / 2], each_lane);
      next[2 * r + 1] = interleave<lanes / 2>(square[r], square[r + lanes / 2], each_lane);
    }
#pragma GCC unroll 16
    for (Index r = 0; r < lanes; ++r) square[r] = next[r];
  }
}

// A vector of the `count` numbers from p on, and zeros past them.
inline Vec load_part(const float* p, Index count) {
  return count >= lanes ? load(p) : Tail{count > 0 ? count : 0}.get(p);
}

// Store two consecutive steps of k of a vector of columns into a panel, or the last step alone.
inline void put_steps(Vec first, Vec second, float* panel) {
  store(panel, first);
  store(panel + NR, second);
}
inline void put_last_step(Vec last, float* panel) { store(panel, last); }

#if defined(__AVX512BF16__)

typedef std::uint32_t VecPairs __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES), aligned(4), may_alias));
typedef std::uint16_t VecHalves __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));

// The numbers of a, then those of b, rounded by the instruction, which takes subnormal numbers as zero.
inline VecHalves to_bf16(Vec a, Vec b) { return (VecHalves)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a); }

// The elements 0, n/2, 1, n/2 + 1, ... of n elements.
template <std::size_t... i>
inline VecHalves interleave_halves(VecHalves v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(i / 2 + i % 2 * lanes)...);
}

inline void store(Bf16Pair* p, VecHalves pairs) { *reinterpret_cast<VecPairs*>(p) = (VecPairs)pairs; }

// Two steps of k as pairs.
inline VecHalves interleaved_pairs(Vec first, Vec second) {
  return interleave_halves(to_bf16(first, second), std::make_index_sequence<2 * lanes>());
}

inline void put_steps(Vec first, Vec second, Bf16Pair* panel) {
  store(panel, interleaved_pairs(first, second));
}
inline void put_last_step(Vec last, Bf16Pair* panel) { put_steps(last, Vec{}, panel); }

// Pack A in pairs, row by row of its memory. Whole vectors are written, and `stride` has room for them.
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
      if (p + 1 < a.cols) {
        put_steps(first, load_part(x + a.ld + i, a.rows - i), out + i);
      } else {
        put_last_step(first, out + i);
      }
    }
  }
}

#endif

// Pack the columns of a panel from the rows of B's transpose: n of them exist, n <= lanes, and zeros follow.
template <class Element>
inline void pack_transposed_strip(Index k, Index n, const float* rows, Index ld, Element* panel) {
  const auto at = [&](Index p) { return panel + p / k_pack<Element> * NR; };
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
inline void pack_panel(const Matrix<float>& b, Element* panel) {
  const Index k = b.rows, n = b.cols, second = n > lanes ? n - lanes : 0;
  if (b.transposed) {
    pack_transposed_strip(k, n < lanes ? n : lanes, b.data, b.ld, panel);
    return pack_transposed_strip(k, second, b.data + lanes * b.ld, b.ld, panel + lanes);
  }
  const auto pack = [&](auto left, auto right) {
    const float* row = b.data;
    for (Index p = 0; p < k; p += 2, row += 2 * b.ld, panel += 2 / k_pack<Element> * NR) {
      const float* next = row + b.ld;
      for (Index j = 0; j < NR; j += 16) {
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
  if (n == NR) {
    pack(FullVector{}, FullVector{});
  } else {
    pack(Tail{n < lanes ? n : lanes}, Tail{second});
  }
}

inline void round_to_bf16(Index rows, Index cols, const float* x, Index ldx, float* out, Index ld_out) {
  for (Index row = 0; row < rows; ++row, x += ldx, out += ld_out) {
    for_each_vector(cols, [&](Index i, auto part) { part.put(out + i, nearest_bf16(part.get(x + i))); });
  }
}

// --- register tiles ---

inline Vec load_element(const float* p) { return load(p); }
inline Vec broadcast(const float* p) { return splat(*p); }
inline Vec multiply_add(Vec sum, Vec x, Vec y, const float*) { return fma(x, y, sum); }

#if defined(__AVX512BF16__)
inline Vec load_element(const Bf16Pair* p) { return (Vec) * reinterpret_cast<const VecPairs*>(p); }
inline Vec broadcast(const Bf16Pair* p) { return (Vec)(VecPairs{} + *p); }
inline Vec multiply_add(Vec sum, Vec x, Vec y, const Bf16Pair*) {
  return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
}
#endif

// Rows of C in bands of at most MR rows and nearly equal height: with MR 14, 64 rows are cut into
// 13 + 13 + 13 + 13 + 12, not 4 * 14 + 8.
struct Bands {
  Index count, height, taller;  // the first `taller` bands have one row more

  explicit Bands(Index m) : count((m + MR - 1) / MR), height(m / count), taller(m - height * count) {}
  Index begin(Index band) const { return band * height + (band < taller ? band : taller); }
};

constexpr bool has_tall_bands = MR > 8;  // of 14 rows, not of 6

// The bands of a transposed A are copied if at least min_panels panels read them, so that the rows of each
// lie together: (k, rows). Read in place, each step of k takes a cache line or two, of which a band of 6 rows
// needs little. A band of 14 rows is read in place if A's rows are at most max_stride numbers apart; where
// they are further apart, its lines fall into so few sets of the caches that they leave even the L2 cache
// between two panels.
constexpr Index min_panels = 8, max_stride = has_tall_bands ? 256 : 0;
constexpr Index band_copy_size = MR * KC + lanes;

// Copy all bands, some rows of A's memory at a time; copies + i * band_copy_size becomes the i-th. Stores run
// past the end of a copied row; the next row overwrites these numbers. Loads run past it too, into A's next
// row, but for A's last row.
inline void copy_bands(const Bands& bands, Index k, const OperandA<float>& a, float* copies) {
  const Index m = bands.begin(bands.count), whole_rows = a.stride >= lanes ? k - 1 : 0;
  for (Index first = 0; first < k; first += prefetch_distance) {
    const Index last = k - first < prefetch_distance ? k : first + prefetch_distance;
    for (Index p = first; p < last; ++p) {
      const float* ahead = a.data + (p + prefetch_distance) * a.stride;
      for (Index i = 0; i < m; i += 16) __builtin_prefetch(ahead + i);
    }
    for (Index band = 0; band < bands.count; ++band) {
      const Index rows = bands.begin(band + 1) - bands.begin(band);
      const float* from = a.data + bands.begin(band) + first * a.stride;
      float* to = copies + band * band_copy_size + first * rows;
      for (Index p = first; p < last; ++p, from += a.stride, to += rows) {
        for (Index r = 0; r < rows; r += lanes) {
          store(to + r, load_part(from + r, p < whole_rows ? lanes : rows - r));
        }
      }
    }
  }
}

// Store a tile at the right edge of C, where whole vectors do not fit, with the same arithmetic lane by lane.
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

// C (rows, n) = alpha * sums + beta * C, n <= vectors*lanes.
template <Index rows, Index vectors>
inline void store_tile(Index n, const Vec (&sums)[rows][vectors], const TileOutput& out) {
  constexpr Index cols = vectors * lanes;
  const auto for_each_sum = [&](auto put) {
#pragma GCC unroll 16
    for (Index i = 0; i < rows; ++i) {
#pragma GCC unroll 2
      for (Index v = 0; v < vectors; ++v) put(i, v * lanes, sums[i][v]);
    }
  };
  const float alpha = out.alpha, beta = out.beta;  // read once, not after each store
  const Index ldc = out.ldc;
  float* c = out.c;
  if (n < cols) {
    float tile[rows][cols];
    for_each_sum([&](Index i, Index j, Vec sum) { store(tile[i] + j, sum); });
    store_edge_tile(rows, n, tile[0], cols, out);
  } else if (beta == 0) {
    for_each_sum([&](Index i, Index j, Vec sum) { store(c + i * ldc + j, sum * alpha); });
  } else {
    for_each_sum([&](Index i, Index j, Vec sum) {
      float* at = c + i * ldc + j;
      store(at, load(at) * beta + sum * alpha);
    });
  }
}

// One register tile: C (rows, n) from `rows` rows of A and one panel of B, n <= vectors*lanes. Meanwhile each
// step of k may prefetch a line of A that a later band reads: the first step the line at `ahead`, each
// further one `distance` numbers behind the last.
template <class Element, Index rows, Index vectors, bool transposed, bool looks_ahead>
void micro_kernel(Index n, Index k, const OperandA<Element>& operand_a, const OperandB<Element>& operand_b,
                  const TileOutput& out, const Element* ahead, Index distance) {
  const Element *a = operand_a.data, *b = operand_b.data;
  Vec sum[rows][vectors] = {};
  // Rows are reached from two pointers: the distances of all of them from one do not fit into the registers.
  constexpr Index half = (rows + 1) / 2;
  const Element* a_lower = a + half * (transposed ? 1 : operand_a.stride);
  for (Index p = 0; p < k; ++p) {
    if constexpr (looks_ahead) {
      __builtin_prefetch(ahead);
      ahead += distance;
    }
    // Bands of 6 rows, which share most lines of A with a neighbour, lose by this prefetch what they win.
    if constexpr (transposed && has_tall_bands && std::is_same_v<Element, float>) {
      __builtin_prefetch(a + prefetch_distance * operand_a.stride);
      __builtin_prefetch(a_lower + prefetch_distance * operand_a.stride + rows - half - 1);
    }
    Vec y[vectors];
#pragma GCC unroll 2
    for (Index v = 0; v < vectors; ++v) y[v] = load_element(b + v * lanes);
#pragma GCC unroll 16
    for (Index i = 0; i < rows; ++i) {
      const Element* from = i < half ? a : a_lower;
      const Index row = i < half ? i : i - half;
      const Vec x = broadcast(from + row * (transposed ? 1 : operand_a.stride));
#pragma GCC unroll 2
      for (Index v = 0; v < vectors; ++v) sum[i][v] = multiply_add(sum[i][v], x, y[v], from);
    }
    a += transposed ? operand_a.stride : 1;
    a_lower += transposed ? operand_a.stride : 1;
    b += operand_b.stride;
  }
  // Copy the sums, since store_tile() takes their address: otherwise Clang stores `sum` at each step of k.
  Vec result[rows][vectors];
#pragma GCC unroll 16
  for (Index i = 0; i < rows; ++i) {
#pragma GCC unroll 2
    for (Index v = 0; v < vectors; ++v) result[i][v] = sum[i][v];
  }
  store_tile(n, result, out);
}

// Micro-kernels by the height of their tile: of_rows[r] computes r + 1 rows.
template <class Element>
struct MicroKernels {
  using MicroKernel = void (*)(Index n, Index k, const OperandA<Element>&, const OperandB<Element>&,
                               const TileOutput&, const Element* ahead, Index distance);
  MicroKernel of_rows[MR];
};

template <class Element, Index vectors, bool transposed, bool looks_ahead = false>
constexpr MicroKernels<Element> tiles = []<std::size_t... r>(std::index_sequence<r...>) {
  return MicroKernels<Element>{{micro_kernel<Element, Index{r} + 1, vectors, transposed, looks_ahead>...}};
}
(std::make_index_sequence<MR>());

// Prefetch a tile of C, which often lies in memory, while its sums are formed.
inline void prefetch_tile(Index rows, const TileOutput& out) {
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < 32; j += 16) __builtin_prefetch(out.c + i * out.ldc + j, 1, 2);
}

// C (m, n) by the calling thread: for each chunk of B that stays in the L2 cache, for each band of rows, for
// each panel of the chunk.
template <class Element>
void macro_kernel(Index m, Index n, Index k, const OperandA<Element>& a, const OperandB<Element>& b,
                  const TileOutput& out) {
  constexpr Index worth_prefetching = 48;  // steps of k; a shorter tile is done before its C could arrive
  // A prefetch of A pays from 128 steps of k on. It was measured with bands of 14 rows alone; with 6 rows it
  // stands beside fewer multiply-adds.
  const auto& wide = a.transposed ? tiles<Element, 2, true>
                     : k >= 128   ? tiles<Element, 2, false, has_tall_bands>
                                  : tiles<Element, 2, false>;
  const auto& narrow = a.transposed ? tiles<Element, 1, true> : tiles<Element, 1, false>;
  constexpr Index chunk_numbers = 128 * 1024;  // 512 KiB, half of an L2 cache of 1 MiB
  const Bands bands(m);
  const Element* copies = nullptr;
  if constexpr (std::is_same_v<Element, float>) {
    if (a.transposed && a.stride > max_stride && bands.count > 1 && n >= min_panels * NR) {
      float* room = thread_scratch<float, struct BandCopies>(bands.count * band_copy_size);
      copy_bands(bands, k, a, room);
      copies = room;
    }
  }
  const Index chunk = (1 + (chunk_numbers - 1) / (k * NR)) * NR;
  for (Index left = 0; left < n; left += chunk) {
    const Index right = n - left < chunk ? n : left + chunk;
    for (Index band = 0; band < bands.count; ++band) {
      const Index i = bands.begin(band), rows = bands.begin(band + 1) - i;
      OperandA<Element> a_band = a.from(i, 0);
      if (copies != nullptr) a_band = {copies + band * band_copy_size, rows, true};
      // What is prefetched meanwhile, if A is not transposed: the next band, or, if bands are copied, the
      // same band of the tile of C below. If its rows lie one behind the other, each panel prefetches an
      // equal part of them; otherwise each prefetches a row.
      const Index panels = (right - left + NR - 1) / NR, next = copies == nullptr ? i + rows : i + m;
      const Index distance = a.stride == k ? (rows + panels - 1) / panels : 1;
      const Element* ahead = a.from(next, 0).data;
      for (Index j = left; j < right; j += NR) {
        const TileOutput tile(out, i, j);
        if (k >= worth_prefetching) prefetch_tile(rows, tile);
        (n - j > lanes ? wide : narrow)
            .of_rows[rows - 1](n - j, k, a_band, b.from(0, j / NR), tile, ahead, distance);
        ahead += distance * a.stride;
      }
    }
  }
}

}  // namespace normscope::NORMSCOPE_NAMESPACE
