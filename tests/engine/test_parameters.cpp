// First values of a model's parameters. Names and shapes are compared with PyTorch's in test_golden.cpp.
#include <string>

#include "tiny_model.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

// Standard deviation of numbers whose mean is 0.
template <class Real>
double deviation(std::span<const Real> values) {
  return norm(values) / std::sqrt(static_cast<double>(values.size()));
}

// Checks the standard deviation of every matrix after initialisation, against expected(name, part of qkv
// 0-2).
template <class Expected>
void check_deviations(const ModelConfig& config, Expected expected) {
  const ParameterLayout layout(config, 100);
  ParameterBuffer<double> values(layout);
  initialise(config, layout, 3, values);
  for (const Parameter& p : layout.list()) {
    if (!p.is_drawn()) continue;
    const int parts = p.name.ends_with("attn.qkv.weight") ? 3 : 1;
    const auto size = static_cast<std::size_t>(p.size / parts);
    for (int part = 0; part < parts; ++part) {
      const std::span<const double> numbers(values.at(p) + static_cast<std::size_t>(part) * size, size);
      CAPTURE(p.name);
      CAPTURE(part);
      const double target = expected(p.name, part);
      CHECK(std::abs(deviation(numbers) / target - 1) <= 4 / std::sqrt(2.0 * static_cast<double>(size)));
      double mean = 0;
      for (const double x : numbers) mean += x / static_cast<double>(size);
      CHECK(std::abs(mean) <= 4 * target / std::sqrt(static_cast<double>(size)));
    }
  }
}

// C = 64, F = 192, V = 100, L = 3.
ModelConfig wide_config(const std::string& sets) {
  return tiny_config(
      "model.n_layer=3 model.d_model=64 model.d_ff=192 model.context=32 model.activation=swiglu "
      "model.tie_embeddings=false model.init.std=0.03 model.init.embed_std=0.7 " +
      sets);
}

bool is_embedding(const std::string& name) { return name.starts_with("embed."); }
bool writes_stream(const std::string& name) {
  return name.ends_with("attn.out.weight") || name.ends_with("ffn.out.weight");
}
double fan_out(const std::string& name) {  // q, k and v are matrices of their own
  if (name == "head.weight") return 100;
  return name.ends_with("ffn.in.weight") || name.ends_with("ffn.gate.weight") ? 192 : 64;
}
double fan_in(const std::string& name) { return name.ends_with("ffn.out.weight") ? 192 : 64; }

}  // namespace

TEST_CASE("parameters: vectors start at 1 or 0, and each tensor has room of its own") {
  const ModelConfig config =
      tiny_config(R"(model.norm_placement=["peri","rezero"] model.bias=true model.qk_norm=true)");
  const ParameterLayout layout(config, tiny_vocab);
  ParameterBuffer<float> values(layout);
  initialise(config, layout, 3, values);
  Index end = 0, total = 0;
  for (const Parameter& p : layout.list()) {
    CHECK(p.offset >= end);
    CHECK(p.offset % 16 == 0);
    end = p.offset + p.size;
    total += p.size;
    if (p.is_drawn()) continue;
    const float start = p.name.ends_with("norm.weight") ? 1.0f : 0.0f;
    CHECK(std::all_of(values.at(p), values.at(p) + p.size, [&](float x) { return x == start; }));
  }
  CHECK(end <= layout.padded_size());
  CHECK(total == layout.count());
}

TEST_CASE("parameters: first values have the deviation that the scheme says") {
  for (const bool scaled : {true, false}) {
    const std::string scaling = scaled ? "true" : "false";
    check_deviations(wide_config("model.init.scheme=gpt2 model.init.residual_scaling=" + scaling),
                     [&](const std::string& name, int) {
                       const double matrix = scaled && writes_stream(name) ? 0.03 / std::sqrt(6.0) : 0.03;
                       return is_embedding(name) ? 0.7 : matrix;
                     });
  }
  const auto xavier = [](const std::string& name, int) {
    return is_embedding(name) ? 0.7 : std::sqrt(2 / (fan_in(name) + fan_out(name)));
  };
  check_deviations(wide_config("model.init.scheme=xavier_normal"), xavier);
  check_deviations(wide_config("model.init.scheme=xavier_uniform"), xavier);
  check_deviations(wide_config("model.init.scheme=kaiming_normal"), [](const std::string& name, int) {
    return is_embedding(name) ? 0.7 : std::sqrt(2 / fan_in(name));
  });
  // DeepNorm: (8L)^(-1/4) on v, attn.out and the FFN; q, k and the head as they were.
  check_deviations(wide_config("model.norm_placement=deepnorm"), [&](const std::string& name, int part) {
    const bool plain =
        is_embedding(name) || name == "head.weight" || (name.ends_with("qkv.weight") && part < 2);
    return (plain ? 1 : std::pow(24.0, -0.25)) * xavier(name, part);
  });
}

TEST_CASE("parameters: uniform draws fill their bounds and stay inside") {
  const ModelConfig config = wide_config("model.init.scheme=xavier_uniform");
  const ParameterLayout layout(config, 100);
  ParameterBuffer<double> values(layout);
  initialise(config, layout, 3, values);
  const Parameter& p = layout[layout.find("blocks.1.ffn.in.weight")];
  const double bound = std::sqrt(6.0 / (64 + 192));
  const auto [least, most] = std::minmax_element(values.at(p), values.at(p) + p.size);
  CHECK(*most <= bound);
  CHECK(*least >= -bound);
  CHECK(*most >= 0.99 * bound);
  CHECK(*least <= -0.99 * bound);
}

TEST_CASE("parameters: each block and each seed has draws of its own") {
  const ModelConfig config = wide_config("");
  const ParameterLayout layout(config, 100);
  ParameterBuffer<float> a(layout), other_seed(layout);
  initialise(config, layout, 3, a);
  initialise(config, layout, 4, other_seed);
  CHECK_FALSE(same_bits(a.all(), other_seed.all()));
  const float *one = a.at(layout[layout.find("blocks.0.ffn.in.weight")]),
              *two = a.at(layout[layout.find("blocks.1.ffn.in.weight")]);
  CHECK_FALSE(std::equal(one, one + 100, two));
}

TEST_CASE("parameters: zero_branches and norm_alpha set their own parameters and change no other") {
  const ModelConfig config =
                        tiny_config("model.norm=derf model.init.zero_branches=true model.norm_alpha=0.8"),
                    plain = tiny_config("model.norm=derf");
  const ParameterLayout layout(config, tiny_vocab);
  ParameterBuffer<float> values(layout), others(layout);
  initialise(config, layout, 3, values);
  initialise(plain, layout, 3, others);
  for (const Parameter& p : layout.list()) {
    CAPTURE(p.name);
    for (Index i = 0; i < p.size; ++i) {
      float expected = others.at(p)[i];
      if (writes_stream(p.name)) expected = 0;
      if (p.name.ends_with(".alpha")) expected = 0.8f;
      CHECK(values.at(p)[i] == expected);
    }
  }
}
