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
#include <type_traits>
#include <utility>

#include "core/types.h"

namespace normscope::NORMSCOPE_ISA {

template <class Real>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));
  typedef float Unaligned __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES), aligned(4), may_alias));
  typedef std::int32_t Mask __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));
};
template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));
  typedef double Unaligned __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES), aligned(8), may_alias));
  typedef std::int64_t Mask __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));
};

template <class Real>
using Vec = typename VectorOf<Real>::Type;
template <class Real>
using MaskVec = typename VectorOf<Real>::Mask;  // all bits of a lane set: true

// Lanes of a vector.
template <class Real>
constexpr Index lanes = NORMSCOPE_VECTOR_BYTES / static_cast<Index>(sizeof(Real));

template <class Real>
inline Vec<Real> load(const Real* p) {
  return *reinterpret_cast<const typename VectorOf<Real>::Unaligned*>(p);
}

template <class Real>
inline void store(Real* p, Vec<Real> v) {
  *reinterpret_cast<typename VectorOf<Real>::Unaligned*>(p) = v;
}

template <class Real>
inline Vec<Real> splat(Real x) {
  return x - Vec<Real>{};
}

// The first n lanes from p, the others `fill`; n < lanes.
template <class Real>
inline Vec<Real> load_part(const Real* p, Index n, Real fill = 0) {
  Vec<Real> v = splat(fill);
  for (Index i = 0; i < n; ++i) v[i] = p[i];
  return v;
}

template <class Real>
inline void store_part(Real* p, Vec<Real> v, Index n) {
  for (Index i = 0; i < n; ++i) p[i] = v[i];
}

// Lane by lane: mask ? a : b.
template <class Real>
inline Vec<Real> select(MaskVec<Real> mask, Vec<Real> a, Vec<Real> b) {
  return mask ? a : b;
}

template <class Real>
inline Vec<Real> max(Vec<Real> a, Vec<Real> b) {
  return a > b ? a : b;
}

template <class Real>
inline Vec<Real> min(Vec<Real> a, Vec<Real> b) {
  return a < b ? a : b;
}

// v with lanes i and i ^ distance changed places.
template <Index distance, class V, std::size_t... i>
inline V swap_lanes(V v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(i ^ distance)...);
}

// Combines all lanes by halves: a fixed order.
template <class Real, Index width, class Combine>
inline Vec<Real> fold_lanes(Vec<Real> v, Combine combine) {
  if constexpr (width == 0) {
    return v;
  } else {
    const Vec<Real> other = swap_lanes<width>(v, std::make_index_sequence<lanes<Real>>());
    return fold_lanes<Real, width / 2>(combine(v, other), combine);
  }
}

template <class Real>
inline Real sum_lanes(Vec<Real> v) {
  return fold_lanes<Real, lanes<Real> / 2>(v, [](Vec<Real> a, Vec<Real> b) -> Vec<Real> { return a + b; })[0];
}

template <class Real>
inline Real max_lanes(Vec<Real> v) {
  return fold_lanes<Real, lanes<Real> / 2>(v, [](Vec<Real> a, Vec<Real> b) { return max<Real>(a, b); })[0];
}

// As many doubles as a vector has lanes: what __builtin_convertvector(vector, WideVec<Real>) makes of it.
template <class Real>
using WideVec __attribute__((vector_size(lanes<Real> * sizeof(double)))) = double;
template <class Real>
inline double sum_wide(const WideVec<Real>& v) {
  double sum = 0;
  for (Index i = 0; i < lanes<Real>; ++i) sum += v[i];
  return sum;
}

inline float square_root(float x) { return __builtin_sqrtf(x); }
inline double square_root(double x) { return __builtin_sqrt(x); }

// How for_each_vector() hands out elements: whole vectors, then at most one part of a vector.
struct Whole {
  template <class Real>
  Vec<Real> get(const Real* p, Real = 0) const {
    return load(p);
  }
  template <class Real>
  void put(Real* p, Vec<Real> v) const {
    store(p, v);
  }
};
struct Part {
  Index count;
  template <class Real>
  Vec<Real> get(const Real* p, Real fill = 0) const {
    return load_part(p, count, fill);
  }
  template <class Real>
  void put(Real* p, Vec<Real> v) const {
    store_part(p, v, count);
  }
};

// Calls body(i, part) for i = 0, lanes, 2*lanes, ... < n. `part` reads and writes what of a vector lies
// inside n.
template <class Real, class Body>
inline void for_each_vector(Index n, Body&& body) {
  Index i = 0;
  for (; i + lanes<Real> <= n; i += lanes<Real>) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

// The contract of gradients: data = beta*data + contribution, where data is not read when beta is 0.
template <class Real, class Lanes>
inline void add_into(Real* data, Real beta, Vec<Real> contribution, Lanes part) {
  part.put(data, beta == 0 ? contribution : Vec<Real>(part.get(data) * beta + contribution));
}

}  // namespace normscope::NORMSCOPE_ISA
