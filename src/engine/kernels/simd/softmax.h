// Softmax of logits, softmax of attention scores.
#pragma once

#include "kernels/arguments.h"
#include "kernels/simd/vector.h"

namespace normscope::NORMSCOPE_NAMESPACE {

constexpr float lowest = -3.0e38f;

// m = max x_i and l = sum exp(x_i - m).
inline void softmax_stats(Index n, const float* x, float* row_max, float* row_sum) {
  Vec largest = splat(lowest);
  for_each_vector(n, [&](Index i, auto part) { largest = max(part.get(x + i, lowest), largest); });
  const float top = max_lanes(largest);
  // A lane past the end holds `lowest`; its exponential is 0.
  Lanes<Vec> sum;
  for_each_summand(n, [&](Index i, auto part, auto v) { sum[v] += exp(part.get(x + i, lowest) - top); });
  *row_max = top;
  *row_sum = total(sum);
}

// dx_i = beta*dx_i + factor*exp(x_i - m).
inline void add_exponentials(Index n, const float* x, float row_max, float factor, float* dx, float beta) {
  for_each_vector(
      n, [&](Index i, auto part) { add_into(dx + i, beta, factor * exp(part.get(x + i) - row_max), part); });
}

// --- columns of attention: each query sees one key more than the one before --------------------------

// The lanes of queries that see a key, those from `first` on; in the others, `fill` is read and 0 written.
struct CausalMask {
  Index first;
  Vec get(const float* p, float fill = 0) const { return select(seen(), load(p), splat(fill)); }
  void put(float* p, Vec v) const { store(p, select(seen(), v, Vec{})); }

 private:
  template <std::size_t... i>
  static Mask numbers(std::index_sequence<i...>) {
    return Mask{i...};
  }
  Mask seen() const { return numbers(std::make_index_sequence<lanes>()) >= static_cast<std::int32_t>(first); }
};

// The number of keys that the query and all after it see.
inline Index seen_by_all(const CausalTile& tile, Index query) {
  const Index seen = tile.first_visible + query;
  return seen < tile.n_keys ? seen : tile.n_keys;
}

// Call body(offset, part) for each key that a query of the vector from `query` on sees: its scores are at
// `offset`, and `part` hides the queries that do not see the key.
template <class Body>
inline void for_each_key(const CausalTile& tile, Index query, Body&& body) {
  const Index whole = seen_by_all(tile, query), end = seen_by_all(tile, query + lanes - 1);
  for (Index key = 0; key < whole; ++key) body(key * tile.stride + query, FullVector{});
  for (Index key = whole; key < end; ++key) {
    body(key * tile.stride + query, CausalMask{key - whole + 1});
  }
}

// Zeros behind the scores of the vector of queries from `query` on, of keys that none of them sees.
inline void clear_unseen(const CausalTile& tile, Index query, float* x) {
  for (Index key = seen_by_all(tile, query + lanes - 1); key < tile.n_keys; ++key) {
    store(x + key * tile.stride + query, Vec{});
  }
}

// S becomes P∘mask, P = softmax(S); each query's maximum and sum are kept for the backward. `measured`: the
// tile's statistics of P too.
template <bool measured>
void causal_softmax(const CausalTile& tile, float* scores) {
  const float* mask = tile.dropout_mask;
  const bool in_bf16 = tile.in_bf16;
  for_each_vector(tile.n_queries, [&](Index query, auto queries) {
    Vec top = splat(lowest), sum{}, score_sum{};
    for_each_key(tile, query, [&](Index i, auto part) { top = max(part.get(scores + i, lowest), top); });
    for_each_key(tile, query, [&](Index i, auto part) {
      const Vec score = part.get(scores + i, lowest) - top, e = exp(score);
      sum += e;
      if constexpr (measured) score_sum = fma(e, score, score_sum);
      store(scores + i, e);
    });
    const Vec inverse = 1 / sum;
    if constexpr (measured) {
      queries.put(tile.mean_score + query, score_sum * inverse);
      queries.put(tile.first_weight + query, load(scores + query) * inverse);
    }
    for_each_key(tile, query, [&](Index i, auto part) {
      Vec p = part.get(scores + i) * inverse;
      if (mask != nullptr) p *= part.get(mask + i);
      part.put(scores + i, in_bf16 ? nearest_bf16(p) : p);
    });
    clear_unseen(tile, query, scores);
    queries.put(tile.stats.max + query, top);
    queries.put(tile.stats.sum + query, sum);
  });
}

inline void causal_softmax(const CausalTile& tile, float* scores) {
  if (tile.mean_score != nullptr) {
    causal_softmax<true>(tile, scores);
  } else {
    causal_softmax<false>(tile, scores);
  }
}

// S and dP become P∘mask and dS = P (dP - delta), delta = sum_j P_j dP_j of the query; P is computed again,
// the same bits as in the forward. FlashAttention takes delta = rowsum(dO * O), equal in exact arithmetic;
// ours keeps sum_j dS_j = 0 to rounding even for huge logits, and dS = 0 where one weight is 1.
inline void causal_softmax_backward(const CausalTile& tile, float* scores, float* grads) {
  const float* mask = tile.dropout_mask;
  const bool in_bf16 = tile.in_bf16;
  for_each_vector(tile.n_queries, [&](Index query, auto queries) {
    const Vec top = queries.get(tile.stats.max + query),
              inverse = 1 / queries.get(tile.stats.sum + query, 1.0f);
    Vec delta{};
    for_each_key(tile, query, [&](Index i, auto part) {
      const Vec p = exp(Vec(part.get(scores + i) - top)) * inverse;
      Vec dp = part.get(grads + i);
      if (mask != nullptr) {
        dp *= part.get(mask + i);
        store(grads + i, dp);
      }
      part.put(scores + i, p);
      delta = fma(part.get(scores + i), dp, delta);
    });
    for_each_key(tile, query, [&](Index i, auto part) {
      const Vec p = part.get(scores + i), ds = p * (part.get(grads + i) - delta);
      const Vec masked = mask != nullptr ? p * part.get(mask + i) : p;
      part.put(grads + i, in_bf16 ? nearest_bf16(ds) : ds);
      if (mask != nullptr || in_bf16) part.put(scores + i, in_bf16 ? nearest_bf16(masked) : masked);
    });
    clear_unseen(tile, query, scores);
    clear_unseen(tile, query, grads);
  });
}

}  // namespace normscope::NORMSCOPE_NAMESPACE
