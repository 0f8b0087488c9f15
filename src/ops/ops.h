// The differentiable operations. Each is one .cpp file: doc, shape checks, forward, backward side by side.
//
// An activation is a matrix of N = B*T rows, one a token; sequence s owns the rows [s*T, (s+1)*T). Every
// backward follows the one contract of gradients (Accumulator in autograd/tape.h): it adds, it never
// overwrites.
#pragma once

#include <span>

#include "autograd/tape.h"
#include "core/random.h"
#include "kernels/gemm/gemm.h"
#include "kernels/pointwise.h"
#include "kernels/rows.h"

namespace normscope {

// Where a backward adds to the gradient of a parameter; null where the parameter is absent or wants none.
template <class Real>
Real* add_if_wanted(Tape<Real>& tape, const Var<Real>& parameter) {
  return tape.wants_gradient(parameter) ? tape.add_to(parameter) : nullptr;
}

// The `dtype` of some ops is that of y: bf16 for what only GEMMs by that provider will read. They find the
// very numbers that they would have made of it.

// y (N, out) = x (N, in) · weightᵀ + bias. weight: (out, in); bias: (1, out) or absent.
template <class Real>
Var<Real> linear(Tape<Real>& tape, GemmProvider gemm_provider, Var<Real> x, Var<Real> weight,
                 Var<Real> bias = {}, DType dtype = DType::real);

// y = f(x Wᵀ + b), f element by element; fused, so x Wᵀ + b itself is never kept.
template <class Real>
Var<Real> activated_linear(Tape<Real>& tape, GemmProvider gemm_provider, Activation activation, Var<Real> x,
                           Var<Real> weight, Var<Real> bias = {}, DType dtype = DType::real);

// Row n of x (N, C) = token_table[tokens[n]] + position_table[(n mod T) + first_position]. token_table: (V,
// C); position_table: (at least first_position + T, C), learned or constant, or absent. N is tokens.size().
template <class Real>
Var<Real> embedding(Tape<Real>& tape, std::span<const std::int32_t> tokens, Index context,
                    Var<Real> token_table, Var<Real> position_table = {}, Index first_position = 0);

// Layer norm, RMS norm, group norm of each row (kernels/rows.h); of `norm`, only how it normalises is read.
// gain, bias: (1, C) or absent.
template <class Real>
Var<Real> layer_norm(Tape<Real>& tape, LayerNorm<Real> norm, Var<Real> x, Var<Real> gain = {},
                     Var<Real> bias = {}, DType dtype = DType::real);

// Mean and variance of each feature (C).
template <class Real>
struct FeatureMoments {
  Real *mean = nullptr, *variance = nullptr;
};

// Batch norm, instance norm: each feature over the rows of a group (kernels/rows.h). Batch norm writes its
// moments to `batch` if given, the variance unbiased.
template <class Real>
Var<Real> batch_norm(Tape<Real>& tape, BatchNorm<Real> norm, Var<Real> x, Var<Real> gain = {},
                     Var<Real> bias = {}, FeatureMoments<Real> batch = {});

// Batch norm in evaluation: by running moments. Values only, no backward.
template <class Real>
Var<Real> batch_norm_inference(Tape<Real>& tape, BatchNorm<Real> norm, Var<Real> x, Var<Real> gain,
                               Var<Real> bias, FeatureMoments<Real> running);

// y = gain * f(alpha x + shift) + bias (kernels/rows.h). alpha, shift: (1, 1); shift may be absent.
template <class Real>
Var<Real> pointwise_norm(Tape<Real>& tape, Squash squash, Var<Real> x, Var<Real> alpha, Var<Real> shift = {},
                         Var<Real> gain = {}, Var<Real> bias = {});

// RMS norm of every head's query and key in qkv (N, 3C: q, k, v), and of its value if v_gain is given. Gains:
// (1, D), one for all heads (Henry et al. 2020, arXiv 2010.04245, in the RMS form of later models).
template <class Real>
Var<Real> query_key_norm(Tape<Real>& tape, Real eps, Index heads, Var<Real> qkv, Var<Real> q_gain,
                         Var<Real> k_gain, Var<Real> v_gain = {});

// Rotary positions (Su et al. 2021, arXiv 2104.09864), halves rotated as in GPT-NeoX: features (i, i + D/2)
// of each head's query and key turn by the angle position * 10000^(-2i/D). cosines, sines: (positions, D/2),
// constants.
template <class Real>
Var<Real> rotary(Tape<Real>& tape, Index context, Index heads, Var<Real> qkv, const Real* cosines,
                 const Real* sines, Index first_position = 0);

// Zeroes a share p of the elements and divides the others by 1-p. The mask depends on the stream, the
// sequence (first_sequence counts those of earlier micro-batches) and the element alone. p = 0 returns x
// itself.
struct Dropout {
  double p = 0;
  RandomStream stream{0, ""};
  Index context = 1;  // rows a sequence
  Index first_sequence = 0;
};
template <class Real>
Var<Real> dropout(Tape<Real>& tape, const Dropout& drop, Var<Real> x);

// Causal multi-head self-attention (kernels/attention.h) of qkv (N, 3C: q, k, v): (N, C). `drop` acts on the
// weights. The output has the dtype of qkv; bf16 needs heads of even width. `head_stats`: (B*H) to be filled,
// or none.
template <class Real>
Var<Real> causal_attention(Tape<Real>& tape, GemmProvider gemm_provider, Index context, Index heads,
                           Var<Real> qkv, const Dropout& drop = {}, std::span<HeadStats> head_stats = {});

// The same for one sequence that is being written: the rows of qkv follow `length` earlier positions, whose
// keys and values are in the caches (at least length + rows, C); their own are appended there. Values only,
// no backward.
template <class Real>
Var<Real> cached_attention(Tape<Real>& tape, GemmProvider gemm_provider, Index heads, Var<Real> qkv,
                           Index length, Real* key_cache, Real* value_cache);

// y = silu(gate) * x (Shazeer 2020, arXiv 2002.05202).
template <class Real>
Var<Real> swiglu(Tape<Real>& tape, Var<Real> gate, Var<Real> x);

// The residual sum y = alpha*x + branch.
template <class Real>
Var<Real> residual_sum(Tape<Real>& tape, Real alpha, Var<Real> x, Var<Real> branch);

// y = factor*x, a constant factor; 1 returns x itself.
template <class Real>
Var<Real> scale(Tape<Real>& tape, Real factor, Var<Real> x);

// y = factor*x, a learned factor: (1, 1), or (1, C), a number a feature; absent, x itself.
template <class Real>
Var<Real> scale_by(Tape<Real>& tape, Var<Real> factor, Var<Real> x);

// The mean over rows of -log softmax(logits)[target], in nats: (1, 1). logits: (N, V).
template <class Real>
Var<Real> cross_entropy(Tape<Real>& tape, Var<Real> logits, std::span<const std::int32_t> targets);

}  // namespace normscope
