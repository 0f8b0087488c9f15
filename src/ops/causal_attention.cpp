// Causal attention; formulas in kernels/attention.h. Saved: maximum and sum of each score row.
#include <algorithm>

#include "kernels/attention.h"
#include "ops/ops.h"

namespace normscope {

template <class Real>
Var<Real> causal_attention(Tape<Real>& tape, GemmProvider gemm_provider, Index context, Index heads,
                           Var<Real> qkv, const Dropout& drop) {
  const Index width = qkv.cols / 3;
  require(qkv.cols % (3 * heads) == 0 && qkv.rows % context == 0, "causal_attention", "qkv is (", qkv.rows,
          ", ", qkv.cols, "); needed (B*", context, ", 3*", heads, "*D)");
  const bool rounded = qkv.rounded != nullptr;
  require(!rounded || (width / heads) % 2 == 0, "causal_attention", "rounded heads of odd width ",
          width / heads);
  const Index part = qkv.stride() / 3;  // from queries to keys, and from keys to values
  const Attention<Real> attention{qkv.rows / context,
                                  heads,
                                  width / heads,
                                  context,
                                  context,
                                  qkv.stored(),
                                  qkv.stored() + part,
                                  qkv.stored() + 2 * part,
                                  qkv.stride(),
                                  qkv.stride(),
                                  drop.p,
                                  drop.stream,
                                  drop.first_sequence,
                                  rounded};

  // S and O are two products, dV, dP, dQ and dK four, of the half that the mask leaves.
  const double product =
      static_cast<double>(qkv.rows) * static_cast<double>(width) * static_cast<double>(context + 1);
  const typename Tape<Real>::Op op(
      tape, {.name = "attention", .flops_forward = 2 * product, .flops_backward = 4 * product});

  Var<Real> y = tape.create(qkv.rows, width, rounded, rounded);
  SoftmaxStats<Real> stats{};
  if (tape.recording()) {
    stats = {tape.template save<Real>(qkv.rows * heads), tape.template save<Real>(qkv.rows * heads)};
  }
  attention_forward(gemm_provider, attention, y.stored(), stats);

  tape.add_noise(qkv.rows * heads, stats.sum);
  tape.record(y, [=](Tape<Real>& t) {
    const Accumulator<Real> d = t.accumulate(qkv);
    attention_backward(gemm_provider, attention, stats, t.gradient(y), d.data, d.data + part,
                       d.data + 2 * part, d.beta);
  });
  return y;
}

template <class Real>
Var<Real> cached_attention(Tape<Real>& tape, GemmProvider gemm_provider, Index heads, Var<Real> qkv,
                           Index length, Real* key_cache, Real* value_cache) {
  const Index width = qkv.cols / 3;
  require(!tape.recording(), "cached_attention", "has no backward; the tape must not record");
  for (Index row = 0; row < qkv.rows; ++row) {
    const Real* k = qkv.value + row * qkv.cols + width;
    std::copy_n(k, width, key_cache + (length + row) * width);
    std::copy_n(k + width, width, value_cache + (length + row) * width);
  }
  Attention<Real> attention{1,         heads,     width / heads, qkv.rows, length + qkv.rows,
                            qkv.value, key_cache, value_cache,   qkv.cols, width};
  Var<Real> y = tape.create(qkv.rows, width);
  attention_forward<Real>(gemm_provider, attention, y.value, {});
  return y;
}

template Var<float> causal_attention(Tape<float>&, GemmProvider, Index, Index, Var<float>, const Dropout&);
template Var<double> causal_attention(Tape<double>&, GemmProvider, Index, Index, Var<double>, const Dropout&);
template Var<float> cached_attention(Tape<float>&, GemmProvider, Index, Var<float>, Index, float*, float*);
template Var<double> cached_attention(Tape<double>&, GemmProvider, Index, Var<double>, Index, double*,
                                      double*);

}  // namespace normscope
