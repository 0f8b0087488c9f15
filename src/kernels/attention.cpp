#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/gemm_kernel.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// Queries whose scores are one product: the mask hides part of the last so many keys of it. Scores are
// computed transposed, Sᵀ = K Qᵀ: then neighbours in memory are queries, and sums over keys need no sum over
// the lanes of a vector.
constexpr Index query_tile = 16;

// Queries whose weights are kept at a time going backwards: the terms of one visit of dK and dV.
constexpr Index queries_per_block = 4 * query_tile;

// One head of one sequence: where its parts start.
template <class Real>
struct Head {
  Head(const Attention<Real>& a, Index item)
      : sequence(item / a.heads),
        head(item % a.heads),
        width(a.rounded ? a.head_dim / 2 : a.head_dim),
        q_offset(sequence * a.queries * a.q_stride + head * width),
        kv_offset(sequence * a.keys * a.kv_stride + head * width),
        out_stride(a.heads * width),
        out_offset(sequence * a.queries * out_stride + head * width),
        row_offset(item * a.queries),
        q{a.q + q_offset, a.q_stride, false, a.rounded},
        k{a.k + kv_offset, a.kv_stride, false, a.rounded},
        v{a.v + kv_offset, a.kv_stride, false, a.rounded} {}
  Index sequence, head;
  Index width;  // stored numbers of one row
  Index q_offset, kv_offset, out_stride, out_offset, row_offset;
  Operand<Real> q, k, v;
};

// What dropout multiplies weights by, mask/(1-p), for columns of queries from `query` on, and 0 where nothing
// is seen; without dropout null.
template <class Real>
const Real* kept_weights(const Attention<Real>& a, const Head<Real>& head, Index query,
                         const CausalColumns& seen) {
  if (a.dropout == 0) return nullptr;
  struct Kept;
  const Index room = (seen.keys + 1) * seen.stride;
  Real* kept = thread_scratch<Real, Kept>(room);
  std::fill_n(kept, room, Real(0));
  const RandomStream stream =
      a.dropout_stream.at(static_cast<std::uint64_t>(a.first_sequence + head.sequence));
  const Real factor = static_cast<Real>(1 / (1 - a.dropout));
  for (Index i = 0; i < seen.queries; ++i) {
    const Index row = (head.head * a.queries + query + i) * a.keys;
    for (Index key = 0; key < seen.visible + i; ++key) {
      const bool keep = stream.uniform(static_cast<std::uint64_t>(row + key)) >= a.dropout;
      kept[key * seen.stride + i] = keep ? factor : Real(0);
    }
  }
  return kept;
}

template <class Real>
const GemmKernel<Real>& kernel_of(GemmProvider provider) {
  return provider == GemmProvider::bf16 ? bf16_kernel<Real>() : simd<Real>().gemm;
}

// Operands in memory of their own, which Tag names.
template <class Tag, class Real>
RightOperand<Real> right(const GemmKernel<Real>& kernel, Index k, Index n, const Operand<Real>& b) {
  return right_operand(kernel, k, n, b, thread_scratch<Real, Tag>(packed_size(kernel, k, n)));
}
template <class Tag, class Real>
LeftOperand<Real> left(const GemmKernel<Real>& kernel, Index m, Index k, const Operand<Real>& a) {
  return left_operand(kernel, m, k, a, thread_scratch<Real, Tag>(left_size(kernel, m, k, a)));
}

// The rest of A from row i and step p of k on, a multiple of kernel.steps; A is not transposed.
template <class Real>
LeftOperand<Real> from(const GemmKernel<Real>& kernel, LeftOperand<Real> a, Index i, Index p) {
  a.data += i * a.stride + p / kernel.steps;
  return a;
}

// out (seen.keys, seen.queries) = scale * A B, where A (keys, D) is K or V and B (D, queries) is Qᵀ or dOᵀ,
// read from column `query` on. Whole vectors of queries are written; past the last query, panels of B hold
// zeros.
template <class Real>
void multiply_by_queries(const GemmKernel<Real>& kernel, const CausalColumns& seen, Index depth,
                         const LeftOperand<Real>& a, RightOperand<Real> b, Index query, Real scale,
                         Real* out) {
  b.data += query / kernel.cols * b.panel_size + query % kernel.cols;
  const Index columns = std::min(query_tile, block_count(seen.queries, kernel.cols) * kernel.cols);
  multiply(kernel, seen.keys, columns, depth, a, b, {scale, 0, out, seen.stride});
}

// Where a head's products (rows, D) are summed: in their place or, if that is rounded, elsewhere until
// round().
template <class Real>
struct HeadSums {
  Real* sums;
  Index stride;
  Real* place;
  Index place_stride;

  void round(const GemmKernel<Real>& kernel, Index rows, Index head_dim) const {
    if (sums != place) kernel.pack_left(rows, head_dim, {sums, stride}, place, place_stride);
  }
};
template <class Tag, class Real>
HeadSums<Real> head_sums(const Attention<Real>& a, Index rows, Real* place, Index stride) {
  if (!a.rounded) return {place, stride, place, stride};
  return {thread_scratch<Real, Tag>(rows * a.head_dim), a.head_dim, place, stride};
}

// One head for a single query, as decoding has it. It sees every key, and its scores are a row: in a column,
// the other lanes of each vector would be wasted.
template <class Real>
void decode_one_query(const GemmKernel<Real>& kernel, const Attention<Real>& a, const Head<Real>& head,
                      Real scale, Real* out) {
  struct Query;
  struct Keys;
  struct Values;
  struct Scores;
  struct Weights;
  struct Output;
  const auto query = left<Query>(kernel, 1, a.head_dim, head.q);
  const auto keys = right<Keys>(kernel, a.head_dim, a.keys, head.k.turned());
  const auto values = right<Values>(kernel, a.keys, a.head_dim, head.v);
  const auto o = head_sums<Output>(a, 1, out + head.out_offset, head.out_stride);
  Real* scores = thread_scratch<Real, Scores>(a.keys);
  multiply(kernel, 1, a.keys, a.head_dim, query, keys, {scale, 0, scores, a.keys});
  Real max, sum;
  simd<Real>().softmax_stats(a.keys, scores, &max, &sum);
  simd<Real>().add_exponentials(a.keys, scores, max, 1 / sum, scores, 0);
  if (const Real* kept = kept_weights(a, head, 0, {1, a.keys, a.keys, 1})) {
    simd<Real>().multiply(a.keys, scores, kept, scores);
  }
  multiply(kernel, 1, a.head_dim, a.keys, left<Weights>(kernel, 1, a.keys, {scores, a.keys}), values,
           {1, 0, o.sums, o.stride});
  o.round(kernel, 1, a.head_dim);
}

}  // namespace

template <class Real>
void attention_forward(GemmProvider provider, const Attention<Real>& a, Real* out, SoftmaxStats<Real> stats) {
  const Real scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(a.head_dim)));
  const Index head_dim = a.head_dim, first_position = a.keys - a.queries;
  const GemmKernel<Real>& kernel = kernel_of<Real>(provider);
  parallel_each(a.sequences * a.heads, [&](Index item) {
    const Head<Real> head(a, item);
    if (a.queries == 1 && stats.max == nullptr) return decode_one_query(kernel, a, head, scale, out);
    struct Queries;
    struct Keys;
    struct Values;
    struct Scores;
    struct Outputs;
    const auto queries = right<Queries>(kernel, head_dim, a.queries, head.q.turned());
    const auto keys = left<Keys>(kernel, a.keys, head_dim, head.k);
    const auto values = right<Values>(kernel, a.keys, head_dim, head.v);
    const auto o = head_sums<Outputs>(a, a.queries, out + head.out_offset, head.out_stride);
    constexpr Index stride = query_tile;
    Real* scores = thread_scratch<Real, Scores>((a.keys + 1) * stride);
    for (Index t = 0; t < a.queries; t += query_tile) {
      const Index rows = std::min(query_tile, a.queries - t);
      const CausalColumns seen{rows, first_position + t + 1, first_position + t + rows, stride};
      multiply_by_queries(kernel, seen, head_dim, keys, queries, t, scale, scores);
      Real unused[2][query_tile];
      kernel.causal_softmax(
          seen, kept_weights(a, head, t, seen), scores,
          stats.max != nullptr ? stats.from(head.row_offset + t) : SoftmaxStats<Real>{unused[0], unused[1]});
      multiply<Real>(kernel, rows, head_dim, seen.keys, {scores, stride, true}, values,
                     {1, 0, o.sums + t * o.stride, o.stride});
    }
    o.round(kernel, a.queries, head_dim);
  });
}

template <class Real>
void attention_backward(GemmProvider provider, const Attention<Real>& a, SoftmaxStats<Real> stats,
                        const Real* dout, Real* dq, Real* dk, Real* dv, Real beta) {
  const Real scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(a.head_dim)));
  const Index head_dim = a.head_dim;
  const Index stride = scratch_stride<Real>(queries_per_block);
  const GemmKernel<Real>& kernel = kernel_of<Real>(provider);
  parallel_each(a.sequences * a.heads, [&](Index item) {
    const Head<Real> head(a, item);
    const Operand<Real> d_out{dout + head.out_offset, head.out_stride, false, a.rounded};
    struct QueriesTransposed;
    struct OutGradientsTransposed;
    struct Queries;
    struct OutGradients;
    struct KeysLeft;
    struct ValuesLeft;
    struct Keys;
    struct Weights;
    struct Gradients;
    struct GradientsTurned;
    const auto queries_transposed = right<QueriesTransposed>(kernel, head_dim, a.queries, head.q.turned());
    const auto out_grads_transposed =
        right<OutGradientsTransposed>(kernel, head_dim, a.queries, d_out.turned());
    const auto queries = right<Queries>(kernel, a.queries, head_dim, head.q);
    const auto out_grads = right<OutGradients>(kernel, a.queries, head_dim, d_out);
    const auto keys_left = left<KeysLeft>(kernel, a.keys, head_dim, head.k);
    const auto values_left = left<ValuesLeft>(kernel, a.keys, head_dim, head.v);
    const auto keys = right<Keys>(kernel, a.keys, head_dim, head.k);
    struct QuerySums;
    struct KeySums;
    struct ValueSums;
    const auto dq_sums = head_sums<QuerySums>(a, a.queries, dq + head.q_offset, a.q_stride);
    const auto dk_sums = head_sums<KeySums>(a, a.keys, dk + head.kv_offset, a.kv_stride);
    const auto dv_sums = head_sums<ValueSums>(a, a.keys, dv + head.kv_offset, a.kv_stride);
    Real* weights = thread_scratch<Real, Weights>((a.keys + 1) * stride);
    Real* grads = thread_scratch<Real, Gradients>((a.keys + 1) * stride);
    Real* grads_turned = thread_scratch<Real, GradientsTurned>(block_count(a.keys, kernel.steps) * stride);
    Real keys_beta = beta;  // the last block sees every key, so going backwards its products may overwrite
    for (Index block = block_count(a.queries, queries_per_block) - 1; block >= 0; --block, keys_beta = 1) {
      const Index begin = block * queries_per_block, end = std::min(begin + queries_per_block, a.queries);
      for (Index t = begin; t < end; t += query_tile) {
        const Index rows = std::min(query_tile, end - t);
        const CausalColumns seen{rows, t + 1, t + rows, stride};
        Real* p = weights + t - begin;
        Real* dp = grads + t - begin;
        multiply_by_queries(kernel, seen, head_dim, keys_left, queries_transposed, t, scale, p);
        multiply_by_queries(kernel, seen, head_dim, values_left, out_grads_transposed, t, Real(1), dp);
        const Index stored = (t - begin) / kernel.steps;
        Real* turned = kernel.steps == 1 ? dp : grads_turned;
        kernel.causal_softmax_backward(seen, kept_weights(a, head, t, seen), stats.from(head.row_offset + t),
                                       p, dp, weights + stored, grads + stored, turned);
        multiply<Real>(kernel, rows, head_dim, seen.keys, {turned, stride, true}, keys,
                       {scale, beta, dq_sums.sums + t * dq_sums.stride, dq_sums.stride});
      }

      const LeftOperand<Real> weights_left{weights, stride, false}, grads_left{grads, stride, false};
      // First the keys that all groups of the block see, then those that fewer and fewer do.
      for (Index key = 0, rows = 0; key < end; key += rows) {
        const Index first = std::max(begin, key), count = end - first;  // queries that see such a key
        rows = std::min(first + query_tile, end) - key;
        multiply(kernel, rows, head_dim, count, from(kernel, weights_left, key, first - begin),
                 from_step(kernel, out_grads, first),
                 {1, keys_beta, dv_sums.sums + key * dv_sums.stride, dv_sums.stride});
        multiply(kernel, rows, head_dim, count, from(kernel, grads_left, key, first - begin),
                 from_step(kernel, queries, first),
                 {scale, keys_beta, dk_sums.sums + key * dk_sums.stride, dk_sums.stride});
      }
    }
    dq_sums.round(kernel, a.queries, head_dim);
    dk_sums.round(kernel, a.keys, head_dim);
    dv_sums.round(kernel, a.keys, head_dim);
  });
}

template void attention_forward(GemmProvider, const Attention<float>&, float*, SoftmaxStats<float>);
template void attention_forward(GemmProvider, const Attention<double>&, double*, SoftmaxStats<double>);
template void attention_backward(GemmProvider, const Attention<float>&, SoftmaxStats<float>, const float*,
                                 float*, float*, float*, float);
template void attention_backward(GemmProvider, const Attention<double>&, SoftmaxStats<double>, const double*,
                                 double*, double*, double*, double);

}  // namespace normscope
