#include "op_samples.h"

#include <cmath>
#include <cstdint>

#include "config/run_config.h"
#include "core/text.h"
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

// Gains off 1 and biases off 0: a backward that is right only for the values at the start must not pass.
SampleInput activations(const char* name = "x", Index cols = C) { return {name, N, cols, 0.3, 1.2}; }
SampleInput gain(Index cols = C, const char* name = "gain") { return {name, 1, cols, 1, 0.4}; }
SampleInput bias(Index cols = C) { return {"bias", 1, cols, 0.2, 0.5}; }
SampleInput weight() { return {"weight", 5, C}; }

Dropout sample_dropout() { return {0.3, RandomStream(1, "sample"), T, 5}; }

// An input of an op that may be absent.
Var<double> input(Inputs in, std::size_t i) { return i < in.size() ? in[i] : Var<double>(); }

struct Samples : std::vector<OpSample> {
  template <class Apply>
  void add(std::string name, std::vector<SampleInput> inputs, Apply apply) {
    push_back({std::move(name), std::move(inputs), apply});
  }
};

void add_linear(Samples& samples) {
  const auto by = [](GemmProvider provider, std::optional<Activation> kind = {}) {
    return [=](Tape64& t, Inputs in) { return linear(t, provider, in[0], in[1], input(in, 2), kind); };
  };
  samples.add("linear", {activations(), weight()}, by(GemmProvider::openblas));
  samples.add("linear with bias", {activations(), weight(), bias(5)}, by(GemmProvider::openblas));
  samples.add("linear, native products", {activations(), weight(), bias(5)}, by(GemmProvider::native));
  for (const Activation kind :
       {Activation::relu, Activation::relu2, Activation::gelu, Activation::gelu_tanh, Activation::silu})
    samples.add(std::string("linear and ") + name_of(kind), {activations(), weight(), bias(5)},
                by(GemmProvider::native, kind));
  samples.add("swiglu", {activations("gate"), activations()},
              [](Tape64& t, Inputs in) { return swiglu(t, in[0], in[1]); });
  samples.add("swiglu of one value twice", {activations()},
              [](Tape64& t, Inputs in) { return swiglu(t, in[0], in[0]); });
}

void add_norms(Samples& samples) {
  // With x alone, with a gain, or with a gain and a bias.
  const std::vector<SampleInput> all = {activations(), gain(), bias()};
  const auto first = [&](std::size_t n) { return std::vector(all.begin(), all.begin() + n); };
  const struct {
    const char* name;
    std::size_t inputs;
    LayerNorm<double> norm;
  } of_rows[] = {
      {"layer norm", 3, {.eps = 1e-5}},
      {"layer norm without bias", 2, {.eps = 1e-5}},
      {"layer norm without gain and bias", 1, {.eps = 1e-5}},
      {"layer norm, large eps", 3, {.eps = 0.5}},
      {"layer norm, eps outside the root", 3, {.eps = 0.5, .eps_outside = true}},
      {"rms norm", 2, {.centred = false, .eps = 1e-5}},
      {"rms norm, eps outside the root", 2, {.centred = false, .eps = 0.5, .eps_outside = true}},
      {"group norm", 3, {.groups = 2, .eps = 1e-5}},
  };
  for (const auto& [name, inputs, norm] : of_rows)
    samples.add(name, first(inputs), [form = norm](Tape64& t, Inputs in) {
      return layer_norm(t, form, in[0], input(in, 1), input(in, 2));
    });
  const struct {
    const char* name;
    std::size_t inputs;
    BatchNorm<double> norm;
  } of_columns[] = {{"batch norm", 3, {N, 1e-5}},
                    {"instance norm", 3, {T, 1e-5}},
                    {"instance norm without gain and bias, eps outside", 1, {T, 0.1, true}}};
  for (const auto& [name, inputs, norm] : of_columns)
    samples.add(name, first(inputs), [form = norm](Tape64& t, Inputs in) {
      return batch_norm(t, form, in[0], input(in, 1), input(in, 2));
    });
  const SampleInput alpha{"alpha", 1, 1, 0.5, 0.1}, shift{"shift", 1, 1, 0.2, 0.1};
  samples.add("derf", {activations(), alpha, shift, gain(), bias()}, [](Tape64& t, Inputs in) {
    return pointwise_norm(t, PointwiseFn::erf, in[0], in[1], in[2], in[3], in[4]);
  });
  samples.add("dynamic tanh without gain and bias", {activations(), alpha},
              [](Tape64& t, Inputs in) { return pointwise_norm(t, PointwiseFn::tanh, in[0], in[1]); });
  samples.add("query and key norm", {activations("qkv", 3 * C), gain(C / H, "q gain"), gain(C / H, "k gain")},
              [](Tape64& t, Inputs in) { return query_key_norm(t, 1e-5, H, in[0], in[1], in[2]); });
}

void add_embeddings_and_attention(Samples& samples) {
  const SampleInput tokens{"tokens", 5, C};
  samples.add("embedding", {tokens}, [](Tape64& t, Inputs in) { return embedding(t, token_ids, T, in[0]); });
  samples.add("embedding with positions", {tokens, {"positions", T, C}},
              [](Tape64& t, Inputs in) { return embedding(t, token_ids, T, in[0], in[1]); });
  samples.add("embedding from a later position", {tokens, {"positions", T + 3, C}},
              [](Tape64& t, Inputs in) { return embedding(t, token_ids, T, in[0], in[1], 2); });
  samples.add("rotary", {activations("qkv", 3 * 8)}, [](Tape64& t, Inputs in) {
    // Angles of 6 positions and 2 pairs of features; the tokens' own positions are 2 ... 5.
    double *cosines = t.save<double>(6 * 2), *sines = t.save<double>(6 * 2);
    for (int i = 0; i < 12; ++i) cosines[i] = std::cos(0.7 * i), sines[i] = std::sin(0.7 * i);
    return rotary(t, T, H, in[0], cosines, sines, 2);
  });
  samples.add("dropout", {activations()},
              [](Tape64& t, Inputs in) { return dropout(t, sample_dropout(), in[0]); });
  for (const bool drops : {false, true}) {
    samples.add(drops ? "causal attention with dropout" : "causal attention", {activations("qkv", 3 * C)},
                [=](Tape64& t, Inputs in) {
                  return causal_attention(t, GemmProvider::openblas, T, H, in[0],
                                          drops ? sample_dropout() : Dropout());
                });
  }
  samples.add("cross-entropy", {activations("logits", 5)},
              [](Tape64& t, Inputs in) { return cross_entropy(t, in[0], token_ids); });
}

// Sums share gradient buffers between their inputs, so these use values more than once.
void add_sums(Samples& samples) {
  for (const double alpha : {1.0, 1.7}) {
    samples.add(text("residual sum, alpha ", alpha), {activations(), activations("branch")},
                [=](Tape64& t, Inputs in) { return residual_sum(t, alpha, in[0], in[1]); });
    samples.add(text("residual sum of one value twice, alpha ", alpha), {activations()},
                [=](Tape64& t, Inputs in) { return residual_sum(t, alpha, in[0], in[0]); });
  }
  samples.add("residual blocks", {activations()}, [](Tape64& t, Inputs in) {
    Var<double> x = in[0];
    for (const double alpha : {1.0, 1.3, 1.0}) x = residual_sum(t, alpha, x, swiglu(t, x, x));
    return residual_sum(t, 1.0, in[0], x);
  });
  samples.add("one gradient shared by four", {activations()}, [](Tape64& t, Inputs in) {
    const Var<double> a = scale(t, 2.0, in[0]), b = scale(t, 3.0, a);
    const Var<double> ab = residual_sum(t, 1.0, a, b), abb = residual_sum(t, 1.0, ab, b);
    return residual_sum(t, 1.0, abb, residual_sum(t, 1.0, a, ab));
  });
  samples.add("scale", {activations()}, [](Tape64& t, Inputs in) { return scale(t, 0.6, in[0]); });
  for (const Index cols : {Index{1}, C})
    samples.add(text("scale by ", cols, " parameters"), {{"factor", 1, cols, 0.8, 0.1}, activations()},
                [](Tape64& t, Inputs in) { return scale_by(t, in[0], in[1]); });
}

}  // namespace

std::span<const OpSample> op_samples() {
  static const Samples samples = [] {
    Samples all;
    for (const auto add : {add_linear, add_norms, add_embeddings_and_attention, add_sums}) add(all);
    return all;
  }();
  return samples;
}

}  // namespace normscope::testing
