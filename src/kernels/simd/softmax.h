// Softmax of logits, softmax of attention scores.
#pragma once

#include <utility>

#include "kernels/gemm_kernel.h"
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
struct Seeing {
  Index first;
  template <class Real>
  Vec<Real> get(const Real* p, Real fill = 0) const {
    return select<Real>(seeing<Real>(), load(p), splat(fill));
  }
  template <class Real>
  void put(Real* p, Vec<Real> v) const {
    store(p, select<Real>(seeing<Real>(), v, Vec<Real>{}));
  }

 private:
  template <class Real>
  MaskVec<Real> seeing() const {
    typedef std::remove_reference_t<decltype(MaskVec<Real>{}[0])> Lane;
    return lane_numbers<Real>(std::make_index_sequence<lanes<Real>>()) >= static_cast<Lane>(first);
  }
  template <class Real, std::size_t... i>
  static MaskVec<Real> lane_numbers(std::index_sequence<i...>) {
    return MaskVec<Real>{i...};
  }
};

// The keys that the query sees, and so do those after it.
inline Index seen_by_all(const CausalColumns& at, Index query) {
  const Index seen = at.visible + query;
  return seen < at.keys ? seen : at.keys;
}

// Calls body(offset, part) for each key: the vector of queries from `query` on has its scores at `offset`,
// and `part` hides the queries that do not see the key.
template <class Real, class Body>
inline void each_key(const CausalColumns& at, Index query, Body&& body) {
  const Index whole = seen_by_all(at, query);
  for (Index key = 0; key < whole; ++key) body(key * at.stride + query, Whole{});
  for (Index key = whole; key < at.keys; ++key) body(key * at.stride + query, Seeing{key - whole + 1});
}

// The same two keys at a time: body(key, part, next key's part). No query sees one past the last.
template <class Real, class Body>
inline void each_two_keys(const CausalColumns& at, Index query, Body&& body) {
  const Index whole = seen_by_all(at, query);
  Index key = 0;
  for (; key + 2 <= whole; key += 2) body(key, Whole{}, Whole{});
  for (; key < at.keys; key += 2) {
    body(key, Seeing{key - whole + 1}, Seeing{key + 1 < at.keys ? key - whole + 2 : lanes<Real>});
  }
}

// P = softmax(S), and what makes it again from S.
template <class Real, class Product>
void causal_softmax(const CausalColumns& at, const Real* kept, Real* scores, SoftmaxStats<Real> stats) {
  for_each_vector<Real>(at.queries, [&](Index query, auto queries) {
    Vec<Real> top = splat(lowest(Real{})), sum{};
    each_key<Real>(at, query,
                   [&](Index i, auto part) { top = max<Real>(part.get(scores + i, lowest(Real{})), top); });
    each_key<Real>(at, query, [&](Index i, auto part) {
      const Vec<Real> e = exp(Vec<Real>(part.get(scores + i, lowest(Real{})) - top));
      sum += e;
      store(scores + i, e);
    });
    const Vec<Real> inverse = 1 / sum;
    each_two_keys<Real>(at, query, [&](Index key, auto part, auto next) {
      const Index i = key * at.stride + query, j = i + at.stride;
      Vec<Real> a = part.get(scores + i) * inverse, b = next.get(scores + j) * inverse;
      if (kept != nullptr) {
        a *= part.get(kept + i);
        b *= next.get(kept + j);
      }
      if constexpr (Product::steps == 1) {
        part.put(scores + i, a);
        next.put(scores + j, b);
      } else {
        store(scores + key / 2 * at.stride + query, Product::across(a, b));
      }
    });
    queries.put(stats.max + query, top);
    queries.put(stats.sum + query, sum);
  });
}

// P from S once more, the same bits as in the forward; and through the softmax dS = P (dP - sum_j P_j dP_j
// of the query), dP times `kept`. The sum equals dO·O, which others take; but of these very numbers it makes
// a query's dS sum to 0 however large they are, to 0 itself where one weight is 1. What is left of a
// difference that is only nearly 0 would be multiplied by Q and K.
template <class Real, class Product>
void causal_softmax_backward(const CausalColumns& at, const Real* kept, SoftmaxStats<Real> stats,
                             Real* scores, Real* grads, Real* weights_left, Real* grads_left,
                             Real* grads_turned) {
  for_each_vector<Real>(at.queries, [&](Index query, auto queries) {
    const Vec<Real> top = queries.get(stats.max + query),
                    inverse = 1 / queries.get(stats.sum + query, Real(1));
    Vec<Real> delta{};
    each_key<Real>(at, query, [&](Index i, auto part) {
      const Vec<Real> p = exp(Vec<Real>(part.get(scores + i) - top)) * inverse;
      Vec<Real> dp = part.get(grads + i);
      if (kept != nullptr) {
        dp *= part.get(kept + i);
        store(grads + i, dp);
      }
      part.put(scores + i, p);
      delta += part.get(scores + i) * dp;
    });
    each_two_keys<Real>(at, query, [&](Index key, auto part, auto next) {
      const Index i = key * at.stride + query, j = i + at.stride;
      Vec<Real> a = part.get(scores + i), b = next.get(scores + j);
      const Vec<Real> da = a * (part.get(grads + i) - delta), db = b * (next.get(grads + j) - delta);
      if (kept != nullptr) {
        a *= part.get(kept + i);
        b *= next.get(kept + j);
      }
      if constexpr (Product::steps == 1) {
        if (kept != nullptr) {
          part.put(weights_left + i, a);
          next.put(weights_left + j, b);
        }
        part.put(grads_left + i, da);
        next.put(grads_left + j, db);
      } else {
        const Index row = key * at.stride + query / 2;
        Product::put_along(a, b, weights_left + row, weights_left + row + at.stride);
        Product::put_along(da, db, grads_left + row, grads_left + row + at.stride);
        store(grads_turned + key / 2 * at.stride + query, Product::across(da, db));
      }
    });
  });
}

}  // namespace normscope::NORMSCOPE_ISA
