#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/gemm_kernel.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// Queries whose scores are one product: the mask hides part of the last so many keys of it.
constexpr Index queries_a_product = 16;

// Queries whose weights are kept at a time going backwards: the terms of one visit of dK and dV.
constexpr Index queries_a_block = 4 * queries_a_product;

// One head of one sequence: where its parts start.
template <class Real>
struct Head {
  Head(const Attention<Real>& a, Index item)
      : sequence(item / a.heads),
        head(item % a.heads),
        q_offset(sequence * a.queries * a.q_stride + head * a.head_dim),
        kv_offset(sequence * a.keys * a.kv_stride + head * a.head_dim),
        out_stride(a.heads * a.head_dim),
        out_offset(sequence * a.queries * out_stride + head * a.head_dim),
        row_offset(item * a.queries) {}
  Index sequence, head, q_offset, kv_offset, out_stride, out_offset, row_offset;
};

// Weights times mask/(1-p), for rows of queries from `query` on.
template <class Real>
void drop_weights(const Attention<Real>& a, const Head<Real>& head, Index query, const CausalRows& seen,
                  Real* weights) {
  const RandomStream stream =
      a.dropout_stream.at(static_cast<std::uint64_t>(a.first_sequence + head.sequence));
  const Real kept = static_cast<Real>(1 / (1 - a.dropout));
  for (Index i = 0; i < seen.rows; ++i) {
    const Index row = (head.head * a.queries + query + i) * a.keys;
    for (Index key = 0; key < seen.visible + i; ++key) {
      weights[i * seen.stride + key] *=
          stream.uniform(static_cast<std::uint64_t>(row + key)) < a.dropout ? Real(0) : kept;
    }
  }
}

template <class Real>
const GemmKernel<Real>& kernel_of(GemmProvider provider) {
  return provider == GemmProvider::bf16 ? bf16_kernel<Real>() : simd<Real>().gemm;
}

// From one row of scores to the next: whole vectors, and rows start in the sets of a cache in turn.
template <class Real>
Index score_stride(Index keys) {
  constexpr Index line = 64 / static_cast<Index>(sizeof(Real));
  return (block_count(keys, line) | 1) * line;
}

// A right operand in memory of its own, which Tag names.
template <class Tag, class Real>
RightOperand<Real> operand(const GemmKernel<Real>& kernel, bool transposed, Index k, Index n, const Real* b,
                           Index ldb) {
  return right_operand(kernel, k, n, {b, ldb, transposed},
                       thread_scratch<Real, Tag>(packed_size(kernel, k, n)));
}

}  // namespace

template <class Real>
void attention_forward(GemmProvider provider, const Attention<Real>& a, Real* out, Real* log_sum_exp) {
  const Real scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(a.head_dim)));
  const Index first_position = a.keys - a.queries, stride = score_stride<Real>(a.keys);
  const GemmKernel<Real>& kernel = kernel_of<Real>(provider);
  parallel_each(a.sequences * a.heads, [&](Index item) {
    const Head<Real> head(a, item);
    struct Keys;
    struct Values;
    struct Scores;
    const auto keys = operand<Keys>(kernel, true, a.head_dim, a.keys, a.k + head.kv_offset, a.kv_stride);
    const auto values = operand<Values>(kernel, false, a.keys, a.head_dim, a.v + head.kv_offset, a.kv_stride);
    Real* scores = thread_scratch<Real, Scores>(queries_a_product * stride);
    for (Index begin = 0; begin < a.queries; begin += queries_a_product) {
      const Index rows = std::min(queries_a_product, a.queries - begin);
      const CausalRows seen{rows, first_position + begin + 1, first_position + begin + rows, stride};
      multiply(kernel, rows, seen.width, a.head_dim, {a.q + head.q_offset + begin * a.q_stride, a.q_stride},
               keys, {scale, 0, scores, stride});
      Real sums[queries_a_product];
      simd<Real>().causal_softmax(seen, scores,
                                  log_sum_exp != nullptr ? log_sum_exp + head.row_offset + begin : sums);
      if (a.dropout > 0) drop_weights(a, head, begin, seen, scores);
      multiply(kernel, rows, a.head_dim, seen.width, {scores, stride}, values,
               {1, 0, out + head.out_offset + begin * head.out_stride, head.out_stride});
    }
  });
}

template <class Real>
void attention_backward(GemmProvider provider, const Attention<Real>& a, const Real* log_sum_exp,
                        const Real* dout, Real* dq, Real* dk, Real* dv, Real beta) {
  const Real scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(a.head_dim)));
  const Index head_dim = a.head_dim, stride = score_stride<Real>(a.keys);
  const GemmKernel<Real>& kernel = kernel_of<Real>(provider);
  const SimdTable<Real>& kernels = simd<Real>();
  parallel_each(a.sequences * a.heads, [&](Index item) {
    const Head<Real> head(a, item);
    const Real *k = a.k + head.kv_offset, *v = a.v + head.kv_offset;
    struct KeysTransposed;
    struct ValuesTransposed;
    struct Keys;
    struct Queries;
    struct OutGradients;
    struct Weights;
    struct Gradients;
    const auto keys_transposed = operand<KeysTransposed>(kernel, true, head_dim, a.keys, k, a.kv_stride);
    const auto values_transposed = operand<ValuesTransposed>(kernel, true, head_dim, a.keys, v, a.kv_stride);
    const auto keys = operand<Keys>(kernel, false, a.keys, head_dim, k, a.kv_stride);
    Real* weights = thread_scratch<Real, Weights>(queries_a_block * stride);
    Real* grads = thread_scratch<Real, Gradients>(queries_a_block * stride);
    Real keys_beta = beta;  // the last block sees every key, so going backwards its products may overwrite
    for (Index block = block_count(a.queries, queries_a_block) - 1; block >= 0; --block, keys_beta = 1) {
      const Index begin = block * queries_a_block, end = std::min(begin + queries_a_block, a.queries);
      const Real* q = a.q + head.q_offset + begin * a.q_stride;
      const Real* d_out = dout + head.out_offset + begin * head.out_stride;
      const auto queries = operand<Queries>(kernel, false, end - begin, head_dim, q, a.q_stride);
      const auto out_grads =
          operand<OutGradients>(kernel, false, end - begin, head_dim, d_out, head.out_stride);

      for (Index t = begin; t < end; t += queries_a_product) {
        const Index rows = std::min(queries_a_product, end - t);
        const CausalRows seen{rows, t + 1, t + rows, stride};
        const Real* log_sums = log_sum_exp + head.row_offset + t;
        const Real* do_rows = d_out + (t - begin) * head.out_stride;
        Real* p = weights + (t - begin) * stride;
        Real* dp = grads + (t - begin) * stride;
        multiply(kernel, rows, seen.width, head_dim, {q + (t - begin) * a.q_stride, a.q_stride},
                 keys_transposed, {scale, 0, p, stride});
        multiply(kernel, rows, seen.width, head_dim, {do_rows, head.out_stride}, values_transposed,
                 {1, 0, dp, stride});
        kernels.causal_softmax_again(seen, log_sums, p);
        if (a.dropout > 0) drop_weights(a, head, t, seen, dp);
        kernels.causal_softmax_backward(seen, p, dp);
        if (a.dropout > 0) drop_weights(a, head, t, seen, p);  // dV takes the dropped weights
        multiply(kernel, rows, head_dim, seen.width, {dp, stride}, keys,
                 {scale, beta, dq + head.q_offset + t * a.q_stride, a.q_stride});
      }

      for (Index key = 0; key < end; key += queries_a_product) {
        const Index rows = std::min(queries_a_product, end - key);
        const Index first = std::max(begin, key), count = end - first;  // queries that see such a key
        const Index corner = (first - begin) * stride + key, kv = head.kv_offset + key * a.kv_stride;
        multiply(kernel, rows, head_dim, count, {weights + corner, stride, true},
                 from_step(kernel, out_grads, first - begin), {1, keys_beta, dv + kv, a.kv_stride});
        multiply(kernel, rows, head_dim, count, {grads + corner, stride, true},
                 from_step(kernel, queries, first - begin), {scale, keys_beta, dk + kv, a.kv_stride});
      }
    }
  });
}

template void attention_forward(GemmProvider, const Attention<float>&, float*, float*);
template void attention_forward(GemmProvider, const Attention<double>&, double*, double*);
template void attention_backward(GemmProvider, const Attention<float>&, const float*, const float*, float*,
                                 float*, float*, float);
template void attention_backward(GemmProvider, const Attention<double>&, const double*, const double*,
                                 double*, double*, double*, double);

}  // namespace normscope
