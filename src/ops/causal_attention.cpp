// Causal attention; formulas in kernels/attention.h. Saved: maximum and sum of each score row.
#include <algorithm>

#include "kernels/attention.h"
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> causal_attention(Tape<Real>& tape, GemmProvider gemm_provider, Index context, Index heads,
                           Var<Real> qkv, const Dropout& drop, std::span<HeadStats> head_stats) {
  const Index rows = qkv.rows, width = qkv.cols / 3;
  const typename Tape<Real>::Op op(tape, "attention", rows, width);
  require(qkv.cols % (3 * heads) == 0 && rows % context == 0, "causal_attention", "qkv is (", rows, ", ",
          qkv.cols, "); needed (B*", context, ", 3*", heads, "*D)");
  const DType dtype = qkv.dtype();
  require(dtype == DType::real || (width / heads) % 2 == 0, "causal_attention", "heads in bf16 of odd width ",
          width / heads);

  Var<Real> y = tape.create(rows, width, dtype, dtype);
  Attention<Real> attention{.sequences = rows / context,
                            .heads = heads,
                            .q = qkv.block(0, 0, rows, width),
                            .k = qkv.block(0, width, rows, width),
                            .v = qkv.block(0, 2 * width, rows, width),
                            .out = y,
                            .dropout = drop.p,
                            .dropout_stream = drop.stream,
                            .first_sequence = drop.first_sequence,
                            .head_stats = head_stats.data()};
  if (tape.recording()) {
    attention.stats = {tape.template save<Real>(rows * heads), tape.template save<Real>(rows * heads)};
  }
  attention_forward(gemm_provider, attention);

  tape.record(y, [=](Tape<Real>& t) {
    const auto [d, beta] = t.accumulate_matrix(qkv);
    attention_backward(gemm_provider, attention,
                       {.out = t.gradient_matrix(y),
                        .q = d.block(0, 0, rows, width),
                        .k = d.block(0, width, rows, width),
                        .v = d.block(0, 2 * width, rows, width),
                        .beta = beta});
  });
  return y;
}

template <class Real>
Var<Real> cached_attention(Tape<Real>& tape, GemmProvider gemm_provider, Index heads, Var<Real> qkv,
                           Index length, Real* key_cache, Real* value_cache) {
  const Index rows = qkv.rows, width = qkv.cols / 3, keys = length + rows;
  require(!tape.recording(), "cached_attention", "has no backward; the tape must not record");
  for (Index row = 0; row < rows; ++row) {
    const Real* k = qkv.value + row * qkv.cols + width;
    std::copy_n(k, width, key_cache + (length + row) * width);
    std::copy_n(k + width, width, value_cache + (length + row) * width);
  }
  Var<Real> y = tape.create(rows, width);
  attention_forward(gemm_provider, Attention<Real>{.sequences = 1,
                                                   .heads = heads,
                                                   .q = qkv.block(0, 0, rows, width),
                                                   .k = {key_cache, keys, width},
                                                   .v = {value_cache, keys, width},
                                                   .out = y});
  return y;
}

template Var<float> causal_attention(Tape<float>&, GemmProvider, Index, Index, Var<float>, const Dropout&,
                                     std::span<HeadStats>);
template Var<double> causal_attention(Tape<double>&, GemmProvider, Index, Index, Var<double>, const Dropout&,
                                      std::span<HeadStats>);
template Var<float> cached_attention(Tape<float>&, GemmProvider, Index, Var<float>, Index, float*, float*);
template Var<double> cached_attention(Tape<double>&, GemmProvider, Index, Var<double>, Index, double*,
                                      double*);

}  // namespace normscope
