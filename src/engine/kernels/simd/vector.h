// SIMD in one source: vectors as wide as the instruction set this file is compiled for.
//
// The headers of this folder are included only by kernels/isa/*.cpp, which define NORMSCOPE_NAMESPACE (a namespace
// name) and NORMSCOPE_VECTOR_BYTES and are compiled with that instruction set's flags. Nothing here may be
// called or inlined elsewhere: everything lives in the namespace of its instruction set. Do not call inline
// functions of <cmath>, <algorithm> or other headers, unless they are always inlined or templates on a type of
// this namespace. Each file compiles a copy of its own, and the linker keeps one of them for the whole program: if
// that is the copy with AVX-512, older processors cannot run it. tests/program/test_builds.py looks for such copies.
//
// The types are the compilers' vector extension (GCC and Clang), so + - * / and comparisons work as on
// scalars. Every instruction set computes the same bits, if it has a fused multiply-add: NOTES.md says how.
#pragma once

#include <cstdint>
#include <utility>

#include "core/types.h"

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace normscope::NORMSCOPE_NAMESPACE {

typedef float Vec __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));
typedef float UnalignedVec __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES), aligned(4), may_alias));
typedef std::int32_t Mask __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));  // all bits of a lane: true

constexpr Index lanes = NORMSCOPE_VECTOR_BYTES / static_cast<Index>(sizeof(float));

// A double for each lane: the result of __builtin_convertvector(vector, WideVec).
typedef double WideVec __attribute__((vector_size(lanes * sizeof(double))));

inline Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }
inline Vec splat(float x) { return x - Vec{}; }

#if defined(__AVX512F__) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
constexpr bool has_fma = true;
#else
constexpr bool has_fma = false;
#endif

// x*y + sum, rounded once; twice on processors without a fused multiply-add. No other operation is fused: the
// program is compiled with -ffp-contract=off.
inline Vec fma(Vec x, Vec y, Vec sum) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)sum);
#elif defined(__FMA__)
  return (Vec)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)sum);
#elif defined(__ARM_FEATURE_FMA)
  return (Vec)vfmaq_f32((float32x4_t)sum, (float32x4_t)x, (float32x4_t)y);
#else
  return x * y + sum;
#endif
}
inline Vec fma(Vec x, Vec y, float sum) { return fma(x, y, splat(sum)); }
inline Vec fma(Vec x, float y, Vec sum) { return fma(x, splat(y), sum); }
inline Vec fma(Vec x, float y, float sum) { return fma(x, splat(y), splat(sum)); }

// mask ? a : b in each lane.
inline Vec select(Mask mask, Vec a, Vec b) { return mask ? a : b; }
inline Vec max(Vec a, Vec b) { return a > b ? a : b; }
inline Vec min(Vec a, Vec b) { return a < b ? a : b; }

// v with lanes i and i ^ distance exchanged.
template <Index distance, class V, std::size_t... i>
inline V swap_lanes(V v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(i ^ distance)...);
}

// Combine all lanes by halves, in a fixed order.
template <Index width = lanes / 2, class Combine>
inline float fold_lanes(Vec v, Combine combine) {
  if constexpr (width == 0) {
    return v[0];
  } else {
    return fold_lanes<width / 2>(combine(v, swap_lanes<width>(v, std::make_index_sequence<lanes>())),
                                 combine);
  }
}

inline float max_lanes(Vec v) { return fold_lanes(v, max); }

// Elements as for_each_vector() hands them out: full vectors, then at most one masked tail.
struct FullVector {
  Vec get(const float* p, float = 0) const { return load(p); }
  void put(float* p, Vec v) const { store(p, v); }
};
// The first `count` lanes; the others are read as `fill`.
struct Tail {
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

// Call body(i, part) for i = 0, lanes, 2*lanes, ... < n. `part` reads and writes the lanes inside n.
template <class Body>
inline void for_each_vector(Index n, Body&& body) {
  Index i = 0;
  for (; i + lanes <= n; i += lanes) body(i, FullVector{});
  if (i < n) body(i, Tail{n - i});
}

// --- sums, in one order on every instruction set ---
//
// A sum is taken as if vectors had 16 lanes: number i is added to lane i mod 16, and at the end the lanes are
// added by halves (doubles: one by one). sum_squares() and tensor_stats() have several such sums at a time,
// of neighbouring groups of 16 numbers, and add them at the end. One vector holds these lanes with AVX-512,
// two with AVX2, four with NEON.

constexpr Index sum_width = 16, vectors_per_sum = sum_width / lanes;

template <class V>
struct Lanes {
  V vector[vectors_per_sum] = {};

  V& operator[](Index i) { return vector[i]; }
};

inline float total(Lanes<Vec> sum) {
  for (Index half = vectors_per_sum / 2; half > 0; half /= 2) {
    for (Index v = 0; v < half; ++v) sum[v] += sum[v + half];
  }
  return fold_lanes(sum[0], [](Vec a, Vec b) -> Vec { return a + b; });
}

inline double total(const Lanes<WideVec>& sum) {
  double total = 0;
  for (const WideVec& v : sum.vector) {
    for (Index i = 0; i < lanes; ++i) total += v[i];
  }
  return total;
}

template <class Body, std::size_t... i>
inline void unrolled(Body&& body, std::index_sequence<i...>) {
  (body(std::integral_constant<Index, i>{}), ...);
}

// Call body(i, part, v) as for_each_vector() does, where v says which vector of Lanes the numbers from i on
// are added to.
template <class Body>
inline void for_each_summand(Index n, Body&& body) {
  constexpr auto vectors = std::make_index_sequence<vectors_per_sum>();
  Index begin = 0;
  for (; begin + sum_width <= n; begin += sum_width) {
    unrolled([&](auto v) { body(begin + v * lanes, FullVector{}, v); }, vectors);
  }
  unrolled(
      [&](auto v) {
        const Index i = begin + v * lanes;
        if (i + lanes <= n) {
          body(i, FullVector{}, v);
        } else if (i < n) {
          body(i, Tail{n - i}, v);
        }
      },
      vectors);
}

// The contract of gradients: data = beta*data + contribution, where data is not read when beta is 0.
template <class Part>
inline void add_into(float* data, float beta, Vec contribution, Part part) {
  part.put(data, beta == 0 ? contribution : fma(part.get(data), beta, contribution));
}

// --- exp, the normal distribution's survival function, tanh and erf, by fits of our own ---

// |x|, by clearing the sign: one operation where a comparison takes three.
inline Vec magnitude(Vec x) { return reinterpret_cast<Vec>(reinterpret_cast<Mask>(x) & 0x7FFFFFFF); }

// y >= 0 with the sign of x.
inline Vec with_sign(Vec y, Vec x) {
  const Mask sign = reinterpret_cast<Mask>(x) & static_cast<std::int32_t>(0x80000000);
  return reinterpret_cast<Vec>(reinterpret_cast<Mask>(y) | sign);
}

// min(x, limit); NaN stays NaN.
inline Vec at_most(float limit, Vec x) {
// Intrinsics, as GCC compiles the last line to a comparison and a blend.
#if defined(__AVX512F__)
  // The masked form: GCC 12 warns of the plain one in its own header (bug 105593).
  return (Vec)_mm512_maskz_min_ps(0xFFFF, _mm512_set1_ps(limit), (__m512)x);
#elif defined(__AVX__)
  return (Vec)_mm256_min_ps(_mm256_set1_ps(limit), (__m256)x);
#else
  return min(splat(limit), x);
#endif
}

// Nearest bf16, ties to even: half of its spacing is added, less one bit where the last bit kept is 0. A NaN,
// which could become infinite, stays as it is.
inline Vec nearest_bf16(Vec x) {
  typedef std::uint32_t Bits __attribute__((vector_size(NORMSCOPE_VECTOR_BYTES)));
  const Bits bits = (Bits)x, nearest = bits + 0x7FFF + ((bits >> 16) & 1);
  return x == x ? (Vec)(nearest & 0xFFFF0000U) : x;
}

// A polynomial in x, its coefficients from that of the highest power on.
template <class... Coefficients>
inline Vec polynomial(Vec x, float highest, Coefficients... rest) {
  Vec p = splat(highest);
  ((p = fma(p, x, rest)), ...);
  return p;
}

// e^x: relative error below 1e-7; 0 below -87.33, infinity above 88.37; NaN stays NaN.
// Cody-Waite: x = n ln2 + r with |r| <= ln2/2; e^r by a polynomial (our own minimax fit, 3e-9).
inline Vec exp(Vec x) {
  // 1.5 * 2^23 + 127, added, rounds to a whole number n and leaves n + 127, the exponent of 2^n, in the low
  // bits.
  constexpr float to_nearest = 12583039.0f;
  const Mask underflow = x < -87.33f;
  x = at_most(89.0f, x);
  const Vec shifted = fma(x, 1.44269504089f, to_nearest);
  const Vec n = shifted - to_nearest;
  const Vec r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));  // ln2 in two parts, the first exact
  const Vec power = reinterpret_cast<Vec>(reinterpret_cast<Mask>(shifted) << 23);  // 2^n
  const Vec p =
      polynomial(r, 0.00138145406f, 0.00836874545f, 0.041668389f, 0.166665211f, 0.49999994f, 1.0f, 1.0f);
  return select(underflow, Vec{}, p * power);
}

// Φ(-x) = erfc(x/sqrt2)/2 for x >= 0, given e = exp(-x*x/2), which callers need anyway. Relative error below
// 4e-7 (1 + x*x/10) plus that of e, which includes the absolute rounding error of x*x/2.
// Φ(-x)/e, Mills' ratio over sqrt(2π), is smooth: our own rational fit, weighted by that bound (1.4e-7).
inline Vec normal_sf(Vec x, Vec e) {
  x = at_most(14.0f, x);  // beyond, e is 0 and powers of x may overflow
  const Vec p = polynomial(x, 0.0152502684f, 0.111912295f, 0.348662794f, 0.49999994f);
  const Vec q = polynomial(x, 0.038236022f, 0.280199707f, 0.916889608f, 1.4952029f, 1.0f);
  return p * e / q;
}

// A value and its derivative at the same point.
struct ValueAndDerivative {
  Vec value, derivative;
};

// tanh(x) and 1 - tanh(x)^2. Relative errors below 2e-7 and, of the derivative, 1e-7 (3 + |x|). With
// w = 1 - tanh|x| = 2/(1 + e^(2|x|)) the derivative w (2 - w) does not cancel where tanh is nearly 1; near 0,
// where 1 - w does, tanh is x + x^3 P(x^2), our own minimax fit (3e-9).
inline ValueAndDerivative tanh(Vec x) {
  const Vec size = magnitude(x), s = x * x, w = 2 / (1 + exp(2 * size));
  const Vec p = polynomial(s, -0.00590587f, 0.02080538f, -0.05378668f, 0.13331958f, -0.33333299f);
  const Vec y = select(size < 0.6f, fma(size * s, p, size), 1 - w);
  return {with_sign(y, x), w * (2 - w)};
}

// erf(x) and 2/sqrt(pi) e^(-x²). Relative errors below 3e-7 and 2e-7 (1 + x²). Near 0, where 1 - 2Φ(-√2|x|)
// would cancel, by the Taylor series, whose first neglected term is 1e-8.
inline ValueAndDerivative erf(Vec x) {
  constexpr float sqrt2 = 1.41421356f, two_over_sqrt_pi = 1.12837917f;
  const Vec size = magnitude(x), s = x * x, e = exp(-s);
  const Vec p = polynomial(s, 0.000120553f, -0.00085483270f, 0.0052239776f, -0.0268661706f, 0.1128379167f,
                           -0.3761263890f, two_over_sqrt_pi);
  const Vec y = select(size < 0.6f, size * p, 1 - 2 * normal_sf(sqrt2 * size, e));
  return {with_sign(y, x), two_over_sqrt_pi * e};
}

}  // namespace normscope::NORMSCOPE_NAMESPACE
