// Fused causal multi-head attention (Vaswani et al. 2017): scores of one head and 16 or 32 queries with all
// their keys exist at a time (in the backward 64 queries), and almost nothing above the diagonal is computed.
// Unlike FlashAttention, keys are not cut into tiles, so softmax is not computed online.
//
//   S = Q Kᵀ / sqrt(D), query t sees keys 0..t;  P = softmax(S);  O = (P∘M) V, M the dropout mask
//
// Kept for the backward: the maximum and the sum of each row of S, from which P is computed again (Dao et al.
// 2022).
#pragma once

#include "core/random.h"
#include "core/sites.h"
#include "kernels/arguments.h"
#include "kernels/gemm/gemm.h"

namespace normscope {

// One attention call over B sequences, stacked by rows.
template <class Real>
struct Attention {
  Index sequences, heads;              // B, H
  Matrix<Real> q;                      // (B*queries, H*D), head h in columns [h*D, (h+1)*D)
  Matrix<Real> k, v;                   // (B*keys, H*D); with a cache, the queries are at the last positions
  Matrix<Real> out;                    // (B*queries, H*D)
  SoftmaxStats<Real> stats{};          // (B, H, queries) each, or null when no backward follows
  double dropout = 0;                  // probability that a weight of P is dropped
  RandomStream dropout_stream{0, ""};  // .at(sequence), element (head*queries + query)*keys + key
  Index first_sequence = 0;            // number of sequence 0 in the whole step's batch
  HeadStats* head_stats = nullptr;     // (B, H), which the forward fills; or null
  Precision precision = Precision::fp32;  // bf16: of Q, K, V, dO, P∘M and dS in the products

  Index queries() const { return q.rows / sequences; }  // T
  Index keys() const { return k.rows / sequences; }     // T
  Index head_dim() const { return q.cols / heads; }     // D

  // The rows of one sequence in the columns of one head; item = sequence*heads + head.
  Matrix<Real> head(const Matrix<Real>& x, Index item) const {
    const Index rows = x.rows / sequences;
    return x.part(item / heads * rows, item % heads * head_dim(), rows, head_dim());
  }
};

// dq, dk, dv = beta*d + ..., each laid out as its input.
template <class Real>
struct AttentionGradients {
  Matrix<Real> out, q, k, v;
  Real beta = 0;
};

// Attention of floats multiplies by our kernels, since the products are too small for a library that packs
// both operands anew. Attention of doubles is the naive twin.
void attention_forward(const Attention<float>& attention);
void attention_forward(const Attention<double>& attention);

// Precondition: queries == keys.
void attention_backward(const Attention<float>& attention, const AttentionGradients<float>& gradients);
void attention_backward(const Attention<double>& attention, const AttentionGradients<double>& gradients);

}  // namespace normscope
