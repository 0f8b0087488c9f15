#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index queries_a_block = 64;

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

// weights[key] *= mask/(1-p), the mask of one query's row.
template <class Real>
void drop_weights(const Attention<Real>& a, const Head<Real>& head, Index query, Index visible,
                  Real* weights) {
  const RandomStream stream =
      a.dropout_stream.at(static_cast<std::uint64_t>(a.first_sequence + head.sequence));
  const Index row = (head.head * a.queries + query) * a.keys;
  const Real kept = static_cast<Real>(1 / (1 - a.dropout));
  for (Index key = 0; key < visible; ++key) {
    weights[key] *= stream.uniform(static_cast<std::uint64_t>(row + key)) < a.dropout ? Real(0) : kept;
  }
}

}  // namespace

template <class Real>
void attention_forward(GemmProvider provider, const Attention<Real>& a, Real* out, Real* log_sum_exp) {
  const Real scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(a.head_dim)));
  const Index first_position = a.keys - a.queries;
  const SimdTable<Real>& kernels = simd<Real>();
  parallel_each(a.sequences * a.heads, [&](Index item) {
    const Head<Real> head(a, item);
    const Real* k = a.k + head.kv_offset;
    const Real* v = a.v + head.kv_offset;
    struct Scores;
    Real* scores = thread_scratch<Real, Scores>(std::min(queries_a_block, a.queries) * a.keys);
    for (Index begin = 0; begin < a.queries; begin += queries_a_block) {
      const Index rows = std::min(queries_a_block, a.queries - begin);
      const Index width = first_position + begin + rows;  // keys that any query of the block sees
      const Real* q = a.q + head.q_offset + begin * a.q_stride;
      gemm_serial<Real>(provider, {Transpose::no, Transpose::yes, rows, width, a.head_dim, Real(1), q,
                                   a.q_stride, k, a.kv_stride, Real(0), scores, width});
      for (Index i = 0; i < rows; ++i) {
        Real* row = scores + i * width;
        const Index visible = first_position + begin + i + 1;
        const Real log_sum = kernels.log_sum_exp(visible, row, scale);
        kernels.softmax(visible, row, scale, log_sum, row);
        if (a.dropout > 0) drop_weights(a, head, begin + i, visible, row);
        std::fill(row + visible, row + width, Real(0));
        if (log_sum_exp != nullptr) log_sum_exp[head.row_offset + begin + i] = log_sum;
      }
      gemm_serial<Real>(
          provider, {Transpose::no, Transpose::no, rows, a.head_dim, width, Real(1), scores, width, v,
                     a.kv_stride, Real(0), out + head.out_offset + begin * head.out_stride, head.out_stride});
    }
  });
}

template <class Real>
void attention_backward(GemmProvider provider, const Attention<Real>& a, const Real* out,
                        const Real* log_sum_exp, const Real* dout, Real* dq, Real* dk, Real* dv, Real beta) {
  const Real scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(a.head_dim)));
  const SimdTable<Real>& kernels = simd<Real>();
  const Index blocks = block_count(a.queries, queries_a_block);
  parallel_each(a.sequences * a.heads, [&](Index item) {
    const Head<Real> head(a, item);
    const Real* k = a.k + head.kv_offset;
    const Real* v = a.v + head.kv_offset;
    struct Weights;
    struct Gradients;
    const Index room = std::min(queries_a_block, a.queries) * a.keys;
    Real* weights = thread_scratch<Real, Weights>(room);
    Real* grads = thread_scratch<Real, Gradients>(room);
    Real keys_beta = beta;  // the last block sees every key, so going backwards its product may overwrite
    for (Index block = blocks - 1; block >= 0; --block, keys_beta = 1) {
      const Index begin = block * queries_a_block;
      const Index rows = std::min(queries_a_block, a.queries - begin);
      const Index width = begin + rows;
      const Real* q = a.q + head.q_offset + begin * a.q_stride;
      const Index o = head.out_offset + begin * head.out_stride;
      gemm_serial<Real>(provider, {Transpose::no, Transpose::yes, rows, width, a.head_dim, Real(1), q,
                                   a.q_stride, k, a.kv_stride, Real(0), weights, width});
      gemm_serial<Real>(provider, {Transpose::no, Transpose::yes, rows, width, a.head_dim, Real(1), dout + o,
                                   head.out_stride, v, a.kv_stride, Real(0), grads, width});
      for (Index i = 0; i < rows; ++i) {
        Real* p = weights + i * width;
        Real* dp = grads + i * width;
        const Index visible = begin + i + 1;
        const Index t = begin + i;
        // sum_j P_j dP_j = dO·O, with or without dropout, since O = (P∘M)V and dP = M∘(dO Vᵀ).
        const Real* o_row = out + head.out_offset + t * head.out_stride;
        const Real* do_row = dout + head.out_offset + t * head.out_stride;
        const Real delta = kernels.dot(a.head_dim, do_row, o_row);
        kernels.softmax(visible, p, scale, log_sum_exp[head.row_offset + t], p);
        if (a.dropout > 0) drop_weights(a, head, t, visible, dp);
        kernels.softmax_backward(visible, p, delta, scale, dp);
        if (a.dropout > 0) drop_weights(a, head, t, visible, p);  // dV takes the dropped weights
        std::fill(p + visible, p + width, Real(0));
        std::fill(dp + visible, dp + width, Real(0));
      }
      gemm_serial<Real>(provider,
                        {Transpose::yes, Transpose::no, width, a.head_dim, rows, Real(1), weights, width,
                         dout + o, head.out_stride, keys_beta, dv + head.kv_offset, a.kv_stride});
      gemm_serial<Real>(provider,
                        {Transpose::no, Transpose::no, rows, a.head_dim, width, Real(1), grads, width, k,
                         a.kv_stride, beta, dq + head.q_offset + begin * a.q_stride, a.q_stride});
      gemm_serial<Real>(provider, {Transpose::yes, Transpose::no, width, a.head_dim, rows, Real(1), grads,
                                   width, q, a.q_stride, keys_beta, dk + head.kv_offset, a.kv_stride});
    }
  });
}

template void attention_forward(GemmProvider, const Attention<float>&, float*, float*);
template void attention_forward(GemmProvider, const Attention<double>&, double*, double*);
template void attention_backward(GemmProvider, const Attention<float>&, const float*, const float*,
                                 const float*, float*, float*, float*, float);
template void attention_backward(GemmProvider, const Attention<double>&, const double*, const double*,
                                 const double*, double*, double*, double*, double);

}  // namespace normscope
