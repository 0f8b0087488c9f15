// Causal multi-head self-attention.
//
//   shapes      qkv (N, 3C: q, k, v) -> y (N, C)
//   forward     y = (P∘M) V,  P = softmax(Q Kᵀ / sqrt(D)), query t sees keys 0..t, M the dropout mask
//   backward    dV = (P∘M)ᵀ dY;  dP = M∘(dY Vᵀ);  dS = P∘(dP - rowsum(P∘dP)) / sqrt(D);
//               dQ = dS K,  dK = dSᵀ Q
//   saved       maximum and sum of each score row, from which P is computed again
//   precision   the products round their operands if mode.precision is bf16
//   source      Vaswani et al. 2017 (arXiv 1706.03762), Dao et al. 2022 (2205.14135)
#pragma once

#include <algorithm>
#include <span>

#include "autograd/tape.h"
#include "kernels/attention.h"
#include "ops/dropout.h"

namespace normscope {

// `drop` acts on the weights. `head_stats`: (B*H) to be filled, or none.
template <class Real>
Var<Real> causal_attention(Tape<Real>& tape, GemmMode mode, Index context, Index heads, Var<Real> qkv,
                           const Dropout& drop = {}, std::span<HeadStats> head_stats = {}) {
  const Index rows = qkv.rows, width = qkv.cols / 3;
  const typename Tape<Real>::Op op(tape, "attention", rows, width);
  require(qkv.cols % (3 * heads) == 0 && rows % context == 0, "causal_attention", "qkv is (", rows, ", ",
          qkv.cols, "); needed (B*", context, ", 3*", heads, "*D)");
  const Var<Real> y = tape.create(rows, width);
  Attention<Real> attention{.sequences = rows / context,
                            .heads = heads,
                            .q = qkv.part(0, 0, rows, width),
                            .k = qkv.part(0, width, rows, width),
                            .v = qkv.part(0, 2 * width, rows, width),
                            .out = y,
                            .dropout = drop.p,
                            .dropout_stream = drop.stream,
                            .first_sequence = drop.first_sequence,
                            .head_stats = head_stats.data(),
                            .precision = mode.precision};
  if (tape.recording()) {
    attention.stats = {tape.template save<Real>(rows * heads), tape.template save<Real>(rows * heads)};
  }
  attention_forward(attention);

  tape.record(y, [=](Tape<Real>& t) {
    const auto [sum, beta] = t.accumulate(qkv);
    const Matrix<Real> d(sum, rows, qkv.cols);
    attention_backward(attention, {.out = t.gradient(y),
                                   .q = d.part(0, 0, rows, width),
                                   .k = d.part(0, width, rows, width),
                                   .v = d.part(0, 2 * width, rows, width),
                                   .beta = beta});
  });
  return y;
}

// Attention of one sequence with a key-value cache: the rows of qkv follow `length` earlier positions, whose
// keys and values are in the caches (at least length + rows, C); their own are appended there. No backward.
template <class Real>
Var<Real> cached_attention(Tape<Real>& tape, GemmMode mode, Index heads, Var<Real> qkv, Index length,
                           Real* key_cache, Real* value_cache) {
  const Index rows = qkv.rows, width = qkv.cols / 3, keys = length + rows;
  require(!tape.recording(), "cached_attention", "has no backward; the tape must not record");
  for (Index row = 0; row < rows; ++row) {
    const Real* k = qkv.data + row * qkv.cols + width;
    std::copy_n(k, width, key_cache + (length + row) * width);
    std::copy_n(k + width, width, value_cache + (length + row) * width);
  }
  const Var<Real> y = tape.create(rows, width);
  attention_forward(Attention<Real>{.sequences = 1,
                                    .heads = heads,
                                    .q = qkv.part(0, 0, rows, width),
                                    .k = {key_cache, keys, width},
                                    .v = {value_cache, keys, width},
                                    .out = y,
                                    .precision = mode.precision});
  return y;
}

}  // namespace normscope
