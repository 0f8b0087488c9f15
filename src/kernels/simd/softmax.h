// Softmax of logits, softmax of attention scores.
#pragma once

#include <type_traits>

#include "kernels/gemm/pack.h"
#include "kernels/simd/math.h"

namespace normscope::NORMSCOPE_ISA {

constexpr float lowest = -3.0e38f;

// m = max x_i and l = sum exp(x_i - m).
inline void softmax_stats(Index n, const float* x, float* row_max, float* row_sum) {
  Vec largest = splat(lowest), sum{};
  for_each_vector(n, [&](Index i, auto part) { largest = max(part.get(x + i, lowest), largest); });
  const float top = max_lanes(largest);
  // A lane past the end holds `lowest`; its exponential is 0.
  for_each_vector(n, [&](Index i, auto part) { sum += exp(part.get(x + i, lowest) - top); });
  *row_max = top;
  *row_sum = sum_lanes(sum);
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
  Mask seen() const { return numbers(each_lane) >= static_cast<std::int32_t>(first); }
};

// The keys that the query sees, and so do those after it.
inline Index seen_by_all(const CausalTile& tile, Index query) {
  const Index seen = tile.first_visible + query;
  return seen < tile.n_keys ? seen : tile.n_keys;
}

// Calls body(offset, part) for each key that a query of the vector from `query` on sees: its scores are at
// `offset`, and `part` hides the queries that do not see the key.
template <class Body>
inline void for_each_key(const CausalTile& tile, Index query, Body&& body) {
  const Index whole = seen_by_all(tile, query), end = seen_by_all(tile, query + lanes - 1);
  for (Index key = 0; key < whole; ++key) body(key * tile.stride + query, Whole{});
  for (Index key = whole; key < end; ++key) {
    body(key * tile.stride + query, CausalMask{key - whole + 1});
  }
}

// Calls body(key, part, next key's part) for each two keys of the tile. No query sees one past the last.
template <class Body>
inline void for_each_two_keys(const CausalTile& tile, Index query, Body&& body) {
  const Index whole = seen_by_all(tile, query);
  Index key = 0;
  for (; key + 2 <= whole; key += 2) body(key, Whole{}, Whole{});
  for (; key < tile.n_keys; key += 2) {
    body(key, CausalMask{key - whole + 1}, CausalMask{key + 1 < tile.n_keys ? key - whole + 2 : lanes});
  }
}

// P = softmax(S), and what makes it again from S. `measured`: and the tile's statistics of P.
template <Index k_pack, bool measured>
void causal_softmax(const CausalTile& tile, float* scores) {
  const float* mask = tile.dropout_mask;
  for_each_vector(tile.n_queries, [&](Index query, auto queries) {
    Vec top = splat(lowest), sum{}, score_sum{};
    for_each_key(tile, query, [&](Index i, auto part) { top = max(part.get(scores + i, lowest), top); });
    for_each_key(tile, query, [&](Index i, auto part) {
      const Vec score = part.get(scores + i, lowest) - top, e = exp(score);
      sum += e;
      if constexpr (measured) score_sum += e * score;
      store(scores + i, e);
    });
    const Vec inverse = 1 / sum;
    if constexpr (measured) {
      queries.put(tile.mean_score + query, score_sum * inverse);
      queries.put(tile.first_weight + query, load(scores + query) * inverse);
    }
    for_each_two_keys(tile, query, [&](Index key, auto part, auto next) {
      const Index i = key * tile.stride + query, j = i + tile.stride;
      Vec a = part.get(scores + i) * inverse, b = next.get(scores + j) * inverse;
      if (mask != nullptr) {
        a *= part.get(mask + i);
        b *= next.get(mask + j);
      }
      if constexpr (k_pack == 1) {
        part.put(scores + i, a);
        next.put(scores + j, b);
      } else {
        store(scores + key / 2 * tile.stride + query, pack_k_pairs(a, b));
      }
    });
    queries.put(tile.stats.max + query, top);
    queries.put(tile.stats.sum + query, sum);
  });
}

template <Index k_pack>
void causal_softmax(const CausalTile& tile, float* scores) {
  tile.mean_score != nullptr ? causal_softmax<k_pack, true>(tile, scores)
                             : causal_softmax<k_pack, false>(tile, scores);
}

// The pairs of queries side by side in a, and in b.
inline void store_pairs(Vec a, Vec b, float* a_pairs, float* b_pairs) {
  const Vec both = cvt_pack(a, b);
  std::memcpy(a_pairs, &both, sizeof both / 2);
  std::memcpy(b_pairs, reinterpret_cast<const char*>(&both) + sizeof both / 2, sizeof both / 2);
}

// Recomputes P from S, the same bits as in the forward; dS = P (dP - delta), delta = sum_j P_j dP_j of the
// query. FlashAttention takes delta = rowsum(dO * O), equal in exact arithmetic; ours keeps sum_j dS_j = 0 to
// rounding even for huge logits, and dS = 0 where one weight is 1.
template <Index k_pack>
void causal_softmax_backward(const CausalTile& tile, const CausalGradients& g) {
  const float* mask = tile.dropout_mask;
  for_each_vector(tile.n_queries, [&](Index query, auto queries) {
    const Vec top = queries.get(tile.stats.max + query),
              inverse = 1 / queries.get(tile.stats.sum + query, 1.0f);
    Vec delta{};
    for_each_key(tile, query, [&](Index i, auto part) {
      const Vec p = exp(Vec(part.get(g.scores + i) - top)) * inverse;
      Vec dp = part.get(g.grads + i);
      if (mask != nullptr) {
        dp *= part.get(mask + i);
        store(g.grads + i, dp);
      }
      part.put(g.scores + i, p);
      delta += part.get(g.scores + i) * dp;
    });
    for_each_two_keys(tile, query, [&](Index key, auto part, auto next) {
      const Index i = key * tile.stride + query, j = i + tile.stride;
      Vec a = part.get(g.scores + i), b = next.get(g.scores + j);
      const Vec da = a * (part.get(g.grads + i) - delta), db = b * (next.get(g.grads + j) - delta);
      if (mask != nullptr) {
        a *= part.get(mask + i);
        b *= next.get(mask + j);
      }
      if constexpr (k_pack == 1) {
        if (mask != nullptr || !std::is_same_v<decltype(part), Whole>) {  // or a key that no query sees
          part.put(g.weights_a + i, a);
          next.put(g.weights_a + j, b);
        }
        part.put(g.grads_a + i, da);
        next.put(g.grads_a + j, db);
      } else {
        const Index row = key * tile.stride + query / 2;
        store_pairs(a, b, g.weights_a + row, g.weights_a + row + tile.stride);
        store_pairs(da, db, g.grads_a + row, g.grads_a + row + tile.stride);
        store(g.grads_transposed + key / 2 * tile.stride + query, pack_k_pairs(da, db));
      }
    });
  });
}

}  // namespace normscope::NORMSCOPE_ISA
