// Activations and their derivatives, sums, products, statistics, optimisers' updates over n elements,
// serially.
#pragma once

#include "kernels/arguments.h"
#include "kernels/simd/vector.h"
#include "kernels/update_rules.h"

namespace normscope::NORMSCOPE_NAMESPACE {

inline ValueAndDerivative relu(Vec x) {
  // NaN passes, since NaN <= 0 is false.
  return {select(x <= 0, Vec{}, x), select(x <= 0, Vec{}, splat(1.0f))};
}

inline ValueAndDerivative relu2(Vec x) {
  const Vec positive = relu(x).value;
  return {positive * positive, 2 * positive};
}

inline ValueAndDerivative gelu(Vec x) {
  constexpr float inv_sqrt_2pi = 0.39894228040143267794f;
  const Vec e = exp(x * x * -0.5f);
  const Vec tail = normal_sf(magnitude(x), e);  // Φ(-|x|)
  const Vec cdf = x < 0 ? tail : 1 - tail;
  return {x * cdf, fma(x * e, inv_sqrt_2pi, cdf)};
}

inline ValueAndDerivative gelu_tanh(Vec x) {
  // (1 + tanh(u))/2 = 1/(1 + exp(-2u)), u = root*(x + cubic*x^3), root = sqrt(2/pi).
  constexpr float root = 0.79788456080286535588f, cubic = 0.044715f;
  const Vec square = x * x;
  const Vec e = exp(x * fma(square, -2 * root * cubic, -2 * root));
  const Vec s = 1 / (1 + e), y = x * s, inner_derivative = fma(square, 6 * root * cubic, 2 * root);
  // 1 - s = e s does not cancel. If s has reached 0 or 1, e or x^2 may be infinite, and 0 * inf would be NaN.
  const Vec bend = select(square > 100, Vec{}, y * (e * s) * inner_derivative);
  return {y, s + bend};
}

inline ValueAndDerivative silu(Vec x) {
  const Vec e = exp(-x), s = 1 / (1 + e), y = x * s;
  const Vec rest = min(splat(1e37f), e) * s;  // 1 - s, without its cancellation
  return {y, fma(y, rest, s)};
}

// Call body with the function of `kind`.
template <class Body>
inline void dispatch_activation(Activation kind, Body body) {
  switch (kind) {
    case Activation::relu:
      return body([](Vec x) { return relu(x); });
    case Activation::relu2:
      return body([](Vec x) { return relu2(x); });
    case Activation::gelu:
      return body([](Vec x) { return gelu(x); });
    case Activation::gelu_tanh:
      return body([](Vec x) { return gelu_tanh(x); });
    case Activation::silu:
      return body([](Vec x) { return silu(x); });
    case Activation::swiglu:
      return;  // ops refuse it
  }
}

inline void activation(Activation kind, Index n, const float* x, float* y, float* derivative) {
  dispatch_activation(kind, [&](auto function) {
    for_each_vector(n, [&](Index i, auto part) {
      const ValueAndDerivative at = function(part.get(x + i));
      part.put(y + i, at.value);
      part.put(derivative + i, at.derivative);
    });
  });
}

inline void swiglu_forward(Index n, const float* gate, const float* x, float* y) {
  for_each_vector(
      n, [&](Index i, auto part) { part.put(y + i, silu(part.get(gate + i)).value * part.get(x + i)); });
}

inline void swiglu_backward(Index n, const float* gate, const float* x, const float* dy, float* dgate,
                            float gate_beta, float* dx, float beta) {
  for_each_vector(n, [&](Index i, auto part) {
    const ValueAndDerivative s = silu(part.get(gate + i));
    const Vec d = part.get(dy + i);
    add_into(dgate + i, gate_beta, d * part.get(x + i) * s.derivative, part);
    add_into(dx + i, beta, d * s.value, part);
  });
}

inline void axpby(Index n, float alpha, const float* x, float beta, float* y) {
  for_each_vector(n, [&](Index i, auto part) { add_into(y + i, beta, alpha * part.get(x + i), part); });
}

inline void add_scaled(Index n, float alpha, const float* a, const float* b, float* y) {
  for_each_vector(n,
                  [&](Index i, auto part) { part.put(y + i, fma(part.get(a + i), alpha, part.get(b + i))); });
}

inline void multiply_elements(Index n, const float* a, const float* b, float* y) {
  for_each_vector(n, [&](Index i, auto part) { part.put(y + i, part.get(a + i) * part.get(b + i)); });
}

// Sums in double: a scale's gradient is the small difference of large sums.
inline double dot(Index n, const float* a, const float* b) {
  Lanes<WideVec> sum;
  for_each_summand(n, [&](Index i, auto part, auto v) {
    sum[v] +=
        __builtin_convertvector(part.get(a + i), WideVec) * __builtin_convertvector(part.get(b + i), WideVec);
  });
  return total(sum);
}

// True if a sum of squares in float is exact enough: no square that matters has underflowed or overflowed.
// Else the sum is taken again in double, whose range holds all squares of floats.
inline bool float_sum_is_safe(float sum_squares) { return sum_squares > 1e-26f && sum_squares < 1e38f; }

constexpr Index piece = 512;  // stays in the L1 cache

// Call add(chain, v, vector) for the numbers of x, 16 to each chain of additions in turn: vector
// chain * vectors_per_sum + v of each stride. The chains are independent.
template <Index chains, class Add>
inline void for_each_in_chains(Index n, const float* x, Add&& add) {
  constexpr Index stride = chains * sum_width;
  Index begin = 0;
  for (; begin + stride <= n; begin += stride) {
    unrolled(
        [&](auto i) {
          add(std::integral_constant<Index, i / vectors_per_sum>{},
              std::integral_constant<Index, i % vectors_per_sum>{}, load(x + begin + i * lanes));
        },
        std::make_index_sequence<chains * vectors_per_sum>());
  }
  for_each_summand(n - begin, [&](Index i, auto part, auto v) {
    add(std::integral_constant<Index, 0>{}, v, part.get(x + begin + i));
  });
}

// Pieces are summed in float, their sums in double.
inline double sum_squares(Index n, const float* x) {
  double total_squares = 0;
  for (; n > 0; x += piece, n -= piece) {
    const Index count = n < piece ? n : piece;
    Lanes<Vec> sums[4];
    for_each_in_chains<4>(
        count, x, [&](auto chain, auto v, Vec value) { sums[chain][v] = fma(value, value, sums[chain][v]); });
    for (Index v = 0; v < vectors_per_sum; ++v) {
      sums[0][v] = (sums[0][v] + sums[1][v]) + (sums[2][v] + sums[3][v]);
    }
    const float squares = total(sums[0]);
    total_squares += float_sum_is_safe(squares) ? squares : dot(count, x, x);
  }
  return total_squares;
}

// Sums and the largest magnitude of one chain. Magnitudes are compared as whole numbers: without the sign
// bit, floating-point numbers are ordered as their bits are, and that takes one instruction.
struct ChainStats {
  Lanes<Vec> sum, squares;
  Mask largest{};

  void add(Index v, Vec value) {
    const Mask magnitude = reinterpret_cast<Mask>(value) & 0x7FFFFFFF;
    sum[v] += value;
    squares[v] = fma(value, value, squares[v]);
    largest = magnitude > largest ? magnitude : largest;
  }
};

// True if the squares are in the range of float lanes, or all 0.
inline bool is_exact_enough(const TensorStats& s) {
  return float_sum_is_safe(static_cast<float>(s.sum_squares)) || (s.sum_squares == 0 && s.abs_max == 0);
}

// The slow path: sums in double, and the count of elements that are not finite.
inline TensorStats wide_stats(Index n, const float* x) {
  Lanes<WideVec> sum, squares;
  Mask bad{};
  Vec largest{};
  for_each_summand(n, [&](Index i, auto part, auto v) {
    const Vec value = part.get(x + i);
    const WideVec wide = __builtin_convertvector(value, WideVec);
    sum[v] += wide;
    squares[v] += wide * wide;
    largest = max(magnitude(value), largest);  // NaN is never the larger one
    bad += (value - value != value - value);   // inf - inf is NaN; a true lane is -1
  });
  TensorStats result{total(sum), total(squares), max_lanes(largest), 0, n};
  for (Index lane = 0; lane < lanes; ++lane) result.nonfinite -= bad[lane];
  return result;
}

inline TensorStats tensor_stats(Index n, const float* x) {
  ChainStats chains[2];
  for_each_in_chains<2>(n, x, [&](auto chain, auto v, Vec value) { chains[chain].add(v, value); });
  ChainStats& all = chains[0];
  for (Index v = 0; v < vectors_per_sum; ++v) {
    all.sum[v] += chains[1].sum[v];
    all.squares[v] += chains[1].squares[v];
  }
  const Vec largest = max(reinterpret_cast<Vec>(all.largest), reinterpret_cast<Vec>(chains[1].largest));
  const TensorStats result{total(all.sum), total(all.squares), max_lanes(largest), 0, n};
  return is_exact_enough(result) ? result : wide_stats(n, x);
}

// The compiler vectorises this loop, square root included.
template <class Rule>
inline void apply_rule(Index n, const Rule& rule, const float* __restrict g, float* __restrict w,
                       float* __restrict m, float* __restrict v) {
  for (Index i = 0; i < n; ++i) rule(g[i], w[i], m[i], v[i]);
}

// Piece by piece, so that w and its change are measured while the piece is in the L1 cache.
inline WeightChange update(Index n, const UpdateRule<float>& any_rule, const float* g, float* w, float* m,
                           float* v) {
  float change[piece];
  WeightChange total;
  for (Index begin = 0; begin < n; begin += piece) {
    const Index count = n - begin < piece ? n - begin : piece;
    for (Index i = 0; i < count; ++i) change[i] = w[begin + i];
    total.before += sum_squares(count, change);
    std::visit([&](const auto& rule) { apply_rule(count, rule, g + begin, w + begin, m + begin, v + begin); },
               any_rule);
    for (Index i = 0; i < count; ++i) change[i] = w[begin + i] - change[i];
    total.change += sum_squares(count, change);
  }
  return total;
}

}  // namespace normscope::NORMSCOPE_NAMESPACE
