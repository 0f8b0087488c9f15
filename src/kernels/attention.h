// Causal multi-head attention (Vaswani et al. 2017), fused: scores exist for one head and a few queries at a
// time, and of what the mask hides next to nothing is computed.
//
//   S = Q Kᵀ / sqrt(D), query t sees keys 0..t;  P = softmax(S);  O = (P∘M) V, M the dropout mask
//
// Kept for the backward: the maximum and the sum of each row of S, from which P is computed again (Dao et al.
// 2022).
#pragma once

#include "core/random.h"
#include "core/types.h"
#include "kernels/gemm.h"
#include "kernels/softmax.h"

namespace normscope {

// Queries, keys and values of `sequences` sequences: row t of sequence s starts at pointer + (s*rows +
// t)*stride, where rows is `queries` or `keys`; head h owns the columns [h*D, (h+1)*D).
template <class Real>
struct Attention {
  Index sequences, heads, head_dim;  // B, H, D
  Index queries, keys;  // T and T; decoding with a cache: few queries, which are the last of the keys
  const Real *q, *k, *v;
  Index q_stride, kv_stride;
  double dropout = 0;                  // of the weights P
  RandomStream dropout_stream{0, ""};  // .at(sequence), element (head*queries + query)*keys + key
  Index first_sequence = 0;            // number of sequence 0 in the whole step's batch
  // q, k, v, the output and all their gradients are rounded to bf16 (kernels/rounded.h), for that provider
  // and even D; strides count stored numbers, and the backward's beta is 0.
  bool rounded = false;
};

// The products are our own kernels', with operands rounded to bf16 if that is the provider: they are too
// small for a library that packs both operands anew for each.
//
// out: (B*queries, H*D), its rows one after another. stats: (B, H, queries) each, or null when no backward
// follows.
template <class Real>
void attention_forward(GemmProvider provider, const Attention<Real>& attention, Real* out,
                       SoftmaxStats<Real> stats);

// Gradients of q, k, v, each laid out as its input: d = beta*d + ... . Only for queries == keys.
template <class Real>
void attention_backward(GemmProvider provider, const Attention<Real>& attention, SoftmaxStats<Real> stats,
                        const Real* dout, Real* dq, Real* dk, Real* dv, Real beta);

}  // namespace normscope
