// SIMD in one source: vectors as wide as the instruction set this file is compiled for.
//
// The headers of this folder are included only by kernels/isa/*.cpp, which define NORMSCOPE_ISA (a namespace
// name) and NORMSCOPE_VECTOR_BYTES and are compiled with that instruction set's flags. Nothing here may be
// called or inlined elsewhere: everything lives in the namespace of its instruction set, and no header with
// inline functions of external linkage that do arithmetic (<cmath>, <algorithm>) is relied on, since the
// linker keeps one copy of those, perhaps one with instructions the machine has not got.
//
// The types are the compilers' vector extension (GCC and Clang), so + - * / and comparisons work as on
// scalars.
#pragma once

#include <cstdint>
#include <utility>

#include "core/types.h"

namespace normscope::NORMSCOPE_ISA {

typedef float Vec __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));
typedef float UnalignedVec __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES), aligned(4), may_alias));
typedef std::int32_t Mask __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));  // all bits of a lane: true

constexpr Index lanes = NORMSCOPE_VECTOR_BYTES / static_cast<Index>(sizeof(float));

// As many doubles as a vector has lanes: what __builtin_convertvector(vector, WideVec) makes of it.
typedef double WideVec __attribute__((vector_size(lanes * sizeof(double))));

inline Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }
inline Vec splat(float x) { return x - Vec{}; }

// Lane by lane: mask ? a : b.
inline Vec select(Mask mask, Vec a, Vec b) { return mask ? a : b; }
inline Vec max(Vec a, Vec b) { return a > b ? a : b; }
inline Vec min(Vec a, Vec b) { return a < b ? a : b; }

// v with lanes i and i ^ distance changed places.
template <Index distance, class V, std::size_t... i>
inline V swap_lanes(V v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(i ^ distance)...);
}

// Combines all lanes by halves: a fixed order.
template <Index width = lanes / 2, class Combine>
inline float fold_lanes(Vec v, Combine combine) {
  if constexpr (width == 0) {
    return v[0];
  } else {
    return fold_lanes<width / 2>(combine(v, swap_lanes<width>(v, std::make_index_sequence<lanes>())),
                                 combine);
  }
}

inline float sum_lanes(Vec v) {
  return fold_lanes(v, [](Vec a, Vec b) -> Vec { return a + b; });
}
inline float max_lanes(Vec v) { return fold_lanes(v, max); }

inline double sum_wide(const WideVec& v) {
  double sum = 0;
  for (Index i = 0; i < lanes; ++i) sum += v[i];
  return sum;
}

// How for_each_vector() hands out elements: whole vectors, then at most one part of a vector.
struct Whole {
  Vec get(const float* p, float = 0) const { return load(p); }
  void put(float* p, Vec v) const { store(p, v); }
};
// The first `count` lanes; the others are read as `fill`.
struct Part {
  Index count;
  Vec get(const float* p, float fill = 0) const {
    Vec v = splat(fill);
    for (Index i = 0; i < count; ++i) v[i] = p[i];
    return v;
  }
  void put(float* p, Vec v) const {
    for (Index i = 0; i < count; ++i) p[i] = v[i];
  }
};

// Calls body(i, part) for i = 0, lanes, 2*lanes, ... < n. `part` reads and writes what of a vector lies
// inside n.
template <class Body>
inline void for_each_vector(Index n, Body&& body) {
  Index i = 0;
  for (; i + lanes <= n; i += lanes) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

// The contract of gradients: data = beta*data + contribution, where data is not read when beta is 0.
template <class Lanes>
inline void add_into(float* data, float beta, Vec contribution, Lanes part) {
  part.put(data, beta == 0 ? contribution : Vec(part.get(data) * beta + contribution));
}

}  // namespace normscope::NORMSCOPE_ISA
