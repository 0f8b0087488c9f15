// Softmax of logits, softmax of attention scores.
#pragma once

#include "kernels/gemm/pack.h"
#include "kernels/simd/math.h"

namespace normscope::NORMSCOPE_ISA {

constexpr float lowest(float) { return -3.0e38f; }
constexpr double lowest(double) { return -1.0e308; }

// m = max x_i and l = sum exp(x_i - m).
template <class Real>
void softmax_stats(Index n, const Real* x, Real* row_max, Real* row_sum) {
  Vec<Real> largest = splat(lowest(Real{}));
  for_each_vector<Real>(
      n, [&](Index i, auto part) { largest = max<Real>(part.get(x + i, lowest(Real{})), largest); });
  const Real top = max_lanes<Real>(largest);
  Vec<Real> sum{};
  for_each_vector<Real>(n, [&](Index i, auto part) {
    // A lane past the end holds `lowest`; its exponential is 0.
    sum += exp(Vec<Real>(part.get(x + i, lowest(Real{})) - top));
  });
  *row_max = top;
  *row_sum = sum_lanes<Real>(sum);
}

// dx_i = beta*dx_i + factor*exp(x_i - m).
template <class Real>
void add_exponentials(Index n, const Real* x, Real row_max, Real factor, Real* dx, Real beta) {
  for_each_vector<Real>(n, [&](Index i, auto part) {
    add_into(dx + i, beta, Vec<Real>(factor * exp(Vec<Real>(part.get(x + i) - row_max))), part);
  });
}

// --- columns of attention: each query sees one key more than the one before --------------------------

// The lanes of queries that see a key, those from `first` on; in the others, `fill` is read and 0 written.
struct CausalMask {
  Index first;
  VecF32 get(const float* p, float fill = 0) const { return select<float>(seen(), load(p), splat(fill)); }
  void put(float* p, VecF32 v) const { store(p, select<float>(seen(), v, VecF32{})); }

 private:
  template <std::size_t... i>
  static MaskVec<float> numbers(std::index_sequence<i...>) {
    return MaskVec<float>{i...};
  }
  MaskVec<float> seen() const { return numbers(each_lane) >= static_cast<std::int32_t>(first); }
};

// The keys that the query sees, and so do those after it.
inline Index seen_by_all(const CausalTile& tile, Index query) {
  const Index seen = tile.first_visible + query;
  return seen < tile.n_keys ? seen : tile.n_keys;
}

// Calls body(offset, part) for each key: the vector of queries from `query` on has its scores at `offset`,
// and `part` hides the queries that do not see the key.
template <class Body>
inline void for_each_key(const CausalTile& tile, Index query, Body&& body) {
  const Index whole = seen_by_all(tile, query);
  for (Index key = 0; key < whole; ++key) body(key * tile.stride + query, Whole{});
  for (Index key = whole; key < tile.n_keys; ++key) {
    body(key * tile.stride + query, CausalMask{key - whole + 1});
  }
}

// Calls body(key, part, next key's part) for each two keys. No query sees one past the last.
template <class Body>
inline void for_each_two_keys(const CausalTile& tile, Index query, Body&& body) {
  const Index whole = seen_by_all(tile, query);
  Index key = 0;
  for (; key + 2 <= whole; key += 2) body(key, Whole{}, Whole{});
  for (; key < tile.n_keys; key += 2) {
    body(key, CausalMask{key - whole + 1}, CausalMask{key + 1 < tile.n_keys ? key - whole + 2 : vec_size});
  }
}

// P = softmax(S), and what makes it again from S.
template <Index k_pack>
void causal_softmax(const CausalTile& tile, float* scores) {
  const float* mask = tile.dropout_mask;
  for_each_vector<float>(tile.n_queries, [&](Index query, auto queries) {
    VecF32 top = splat(lowest(0.0f)), sum{};
    for_each_key(tile, query,
                 [&](Index i, auto part) { top = max<float>(part.get(scores + i, lowest(0.0f)), top); });
    for_each_key(tile, query, [&](Index i, auto part) {
      const VecF32 e = exp(VecF32(part.get(scores + i, lowest(0.0f)) - top));
      sum += e;
      store(scores + i, e);
    });
    const VecF32 inverse = 1 / sum;
    for_each_two_keys(tile, query, [&](Index key, auto part, auto next) {
      const Index i = key * tile.stride + query, j = i + tile.stride;
      VecF32 a = part.get(scores + i) * inverse, b = next.get(scores + j) * inverse;
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

// The pairs of queries side by side in a, and in b.
inline void store_pairs(VecF32 a, VecF32 b, float* a_pairs, float* b_pairs) {
  const VecF32 both = cvt_pack(a, b);
  std::memcpy(a_pairs, &both, sizeof both / 2);
  std::memcpy(b_pairs, reinterpret_cast<const char*>(&both) + sizeof both / 2, sizeof both / 2);
}

// Recomputes P from S, the same bits as in the forward; dS = P (dP - delta), delta = sum_j P_j dP_j of the
// query. FlashAttention takes delta = rowsum(dO * O), equal in exact arithmetic; ours keeps sum_j dS_j = 0 to
// rounding even for huge logits, and dS = 0 where one weight is 1.
template <Index k_pack>
void causal_softmax_backward(const CausalTile& tile, const CausalGradients& g) {
  const float* mask = tile.dropout_mask;
  for_each_vector<float>(tile.n_queries, [&](Index query, auto queries) {
    const VecF32 top = queries.get(tile.stats.max + query),
                 inverse = 1 / queries.get(tile.stats.sum + query, 1.0f);
    VecF32 delta{};
    for_each_key(tile, query, [&](Index i, auto part) {
      const VecF32 p = exp(VecF32(part.get(g.scores + i) - top)) * inverse;
      VecF32 dp = part.get(g.grads + i);
      if (mask != nullptr) {
        dp *= part.get(mask + i);
        store(g.grads + i, dp);
      }
      part.put(g.scores + i, p);
      delta += part.get(g.scores + i) * dp;
    });
    for_each_two_keys(tile, query, [&](Index key, auto part, auto next) {
      const Index i = key * tile.stride + query, j = i + tile.stride;
      VecF32 a = part.get(g.scores + i), b = next.get(g.scores + j);
      const VecF32 da = a * (part.get(g.grads + i) - delta), db = b * (next.get(g.grads + j) - delta);
      if (mask != nullptr) {
        a *= part.get(mask + i);
        b *= next.get(mask + j);
      }
      if constexpr (k_pack == 1) {
        if (mask != nullptr) {
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
