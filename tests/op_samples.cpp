#include "op_samples.h"

#include <cmath>
#include <cstdint>

#include "ops/batch_norm.h"
#include "ops/causal_attention.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/pointwise_norm.h"
#include "ops/query_key_norm.h"
#include "ops/residual.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"

namespace normscope::testing {
namespace {

// Two sequences of 4 tokens (N = 8), C = 6, H = 2, D = 3 or, for rotary, C = 8 and D = 4.
constexpr Index B = 2, T = 4, N = B * T, C = 6, H = 2;
constexpr std::int32_t token_ids[N] = {3, 0, 2, 3, 4, 4, 1, 3};  // of 5; some occur often, some once

using Tape64 = Tape<double>;
using Inputs = std::span<const Var<double>>;

template <Activation kind>
Var<double> apply_activated_linear(Tape64& tape, Inputs in) {
  return linear(tape, GemmProvider::native, in[0], in[1], in[2], kind);
}

Dropout sample_dropout() { return {0.3, RandomStream(1, "sample"), T, 5}; }

// Gains off 1 and biases off 0: a backward that is right only for the values at the start must not pass.
SampleInput activations(const char* name = "x", Index cols = C) { return {name, N, cols, 0.3, 1.2}; }
SampleInput gain(Index cols = C, const char* name = "gain") { return {name, 1, cols, 1, 0.4}; }
SampleInput bias(Index cols = C) { return {"bias", 1, cols, 0.2, 0.5}; }

std::vector<OpSample> make_samples() {
  std::vector<OpSample> samples;
  const auto add = [&](const char* name, std::vector<SampleInput> inputs,
                       Var<double> (*apply)(Tape64&, Inputs)) {
    samples.push_back({name, std::move(inputs), apply});
  };

  add("linear", {activations(), {"weight", 5, C}},
      [](Tape64& t, Inputs in) { return linear(t, GemmProvider::openblas, in[0], in[1]); });
  add("linear with bias", {activations(), {"weight", 5, C}, bias(5)},
      [](Tape64& t, Inputs in) { return linear(t, GemmProvider::openblas, in[0], in[1], in[2]); });
  add("linear, native products", {activations(), {"weight", 5, C}, bias(5)},
      [](Tape64& t, Inputs in) { return linear(t, GemmProvider::native, in[0], in[1], in[2]); });

  add("batch norm", {activations(), gain(), bias()}, [](Tape64& t, Inputs in) {
    return batch_norm<double>(t, {N, 1e-5}, in[0], in[1], in[2]);
  });
  add("instance norm", {activations(), gain(), bias()}, [](Tape64& t, Inputs in) {
    return batch_norm<double>(t, {T, 1e-5}, in[0], in[1], in[2]);
  });
  add("instance norm without gain and bias, eps outside", {activations()}, [](Tape64& t, Inputs in) {
    return batch_norm<double>(t, {T, 0.1, true}, in[0]);
  });
  add("derf", {activations(), {"alpha", 1, 1, 0.5, 0.1}, {"shift", 1, 1, 0.2, 0.1}, gain(), bias()},
      [](Tape64& t, Inputs in) {
        return pointwise_norm(t, PointwiseFn::erf, in[0], in[1], in[2], in[3], in[4]);
      });
  add("dynamic tanh without gain and bias", {activations(), {"alpha", 1, 1, 0.5, 0.1}},
      [](Tape64& t, Inputs in) { return pointwise_norm(t, PointwiseFn::tanh, in[0], in[1]); });

  add("embedding", {{"tokens", 5, C}},
      [](Tape64& t, Inputs in) { return embedding(t, token_ids, T, in[0]); });
  add("embedding with positions", {{"tokens", 5, C}, {"positions", T, C}},
      [](Tape64& t, Inputs in) { return embedding(t, token_ids, T, in[0], in[1]); });
  add("embedding from a later position", {{"tokens", 5, C}, {"positions", T + 3, C}},
      [](Tape64& t, Inputs in) { return embedding(t, token_ids, T, in[0], in[1], 2); });

  add("layer norm", {activations(), gain(), bias()},
      [](Tape64& t, Inputs in) { return layer_norm<double>(t, {.eps = 1e-5}, in[0], in[1], in[2]); });
  add("layer norm without bias", {activations(), gain()},
      [](Tape64& t, Inputs in) { return layer_norm<double>(t, {.eps = 1e-5}, in[0], in[1]); });
  add("layer norm without gain and bias", {activations()},
      [](Tape64& t, Inputs in) { return layer_norm<double>(t, {.eps = 1e-5}, in[0]); });
  add("layer norm, large eps", {activations(), gain(), bias()},
      [](Tape64& t, Inputs in) { return layer_norm<double>(t, {.eps = 0.5}, in[0], in[1], in[2]); });
  add("layer norm, eps outside the root", {activations(), gain(), bias()}, [](Tape64& t, Inputs in) {
    return layer_norm<double>(t, {.eps = 0.5, .eps_outside = true}, in[0], in[1], in[2]);
  });
  add("rms norm", {activations(), gain()}, [](Tape64& t, Inputs in) {
    return layer_norm<double>(t, {.centred = false, .eps = 1e-5}, in[0], in[1]);
  });
  add("rms norm, eps outside the root", {activations(), gain()}, [](Tape64& t, Inputs in) {
    return layer_norm<double>(t, {.centred = false, .eps = 0.5, .eps_outside = true}, in[0], in[1]);
  });
  add("group norm", {activations(), gain(), bias()}, [](Tape64& t, Inputs in) {
    return layer_norm<double>(t, {.groups = 2, .eps = 1e-5}, in[0], in[1], in[2]);
  });
  add("query and key norm", {activations("qkv", 3 * C), gain(C / H, "q gain"), gain(C / H, "k gain")},
      [](Tape64& t, Inputs in) { return query_key_norm(t, 1e-5, H, in[0], in[1], in[2]); });

  add("rotary", {activations("qkv", 3 * 8)}, [](Tape64& t, Inputs in) {
    // Angles of 6 positions and 2 pairs of features; the tokens' own positions are 2 ... 5.
    double* cosines = t.save<double>(6 * 2);
    double* sines = t.save<double>(6 * 2);
    for (int i = 0; i < 12; ++i) {
      cosines[i] = std::cos(0.7 * i);
      sines[i] = std::sin(0.7 * i);
    }
    return rotary(t, T, H, in[0], cosines, sines, 2);
  });

  add("dropout", {activations()}, [](Tape64& t, Inputs in) { return dropout(t, sample_dropout(), in[0]); });
  add("causal attention", {activations("qkv", 3 * C)},
      [](Tape64& t, Inputs in) { return causal_attention(t, GemmProvider::openblas, T, H, in[0]); });
  add("causal attention with dropout", {activations("qkv", 3 * C)}, [](Tape64& t, Inputs in) {
    return causal_attention(t, GemmProvider::openblas, T, H, in[0], sample_dropout());
  });

  add("linear and relu", {activations(), {"weight", 5, C}, bias(5)},
      apply_activated_linear<Activation::relu>);
  add("linear and gelu", {activations(), {"weight", 5, C}, bias(5)},
      apply_activated_linear<Activation::gelu>);
  add("linear and gelu_tanh", {activations(), {"weight", 5, C}, bias(5)},
      apply_activated_linear<Activation::gelu_tanh>);
  add("linear and silu", {activations(), {"weight", 5, C}, bias(5)},
      apply_activated_linear<Activation::silu>);
  add("swiglu", {activations("gate"), activations()},
      [](Tape64& t, Inputs in) { return swiglu(t, in[0], in[1]); });
  add("swiglu of one value twice", {activations()},
      [](Tape64& t, Inputs in) { return swiglu(t, in[0], in[0]); });

  // Sums share gradient buffers between their inputs, so these use values more than once.
  add("residual sum", {activations(), activations("branch")},
      [](Tape64& t, Inputs in) { return residual_sum(t, 1.0, in[0], in[1]); });
  add("residual sum, alpha 1.7", {activations(), activations("branch")},
      [](Tape64& t, Inputs in) { return residual_sum(t, 1.7, in[0], in[1]); });
  add("residual sum of one value twice", {activations()},
      [](Tape64& t, Inputs in) { return residual_sum(t, 1.0, in[0], in[0]); });
  add("residual sum of one value twice, alpha 1.7", {activations()},
      [](Tape64& t, Inputs in) { return residual_sum(t, 1.7, in[0], in[0]); });
  add("residual block", {activations()},
      [](Tape64& t, Inputs in) { return residual_sum(t, 1.0, in[0], swiglu(t, in[0], in[0])); });
  add("residual blocks", {activations()}, [](Tape64& t, Inputs in) {
    Var<double> x = in[0];
    for (const double alpha : {1.0, 1.3, 1.0}) {
      x = residual_sum(t, alpha, x, swiglu(t, x, x));
    }
    return residual_sum(t, 1.0, in[0], x);
  });

  add("one gradient shared by four", {activations()}, [](Tape64& t, Inputs in) {
    const Var<double> a = scale(t, 2.0, in[0]), b = scale(t, 3.0, a);
    const Var<double> ab = residual_sum(t, 1.0, a, b), abb = residual_sum(t, 1.0, ab, b);
    return residual_sum(t, 1.0, abb, residual_sum(t, 1.0, a, ab));
  });

  add("scale", {activations()}, [](Tape64& t, Inputs in) { return scale(t, 0.6, in[0]); });
  add("scale by a parameter", {{"factor", 1, 1, 0.8, 0.1}, activations()},
      [](Tape64& t, Inputs in) { return scale_by(t, in[0], in[1]); });
  add("scale by a vector", {{"factor", 1, C, 0.8, 0.1}, activations()},
      [](Tape64& t, Inputs in) { return scale_by(t, in[0], in[1]); });

  add("cross-entropy", {activations("logits", 5)},
      [](Tape64& t, Inputs in) { return cross_entropy(t, in[0], token_ids); });
  return samples;
}

}  // namespace

std::span<const OpSample> op_samples() {
  static const std::vector<OpSample> samples = make_samples();
  return samples;
}

}  // namespace normscope::testing
