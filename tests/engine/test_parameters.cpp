// First values of a model's parameters: the distributions of the schemes. What placements and keys change of them, and
// the values of vectors, are in law 6 of `check`; names and shapes are compared with PyTorch's in test_golden.cpp.
#include <functional>
#include <set>
#include <string>

#include "tiny_model.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

// C = 64, F = 192, V = 100, L = 3, and every kind of tensor.
struct FirstValues {
  explicit FirstValues(const std::string& sets, std::uint64_t seed = 3)
      : config(tiny_config(
            R"(model.n_layer=3 model.norm_placement=["peri","rezero","pre"] model.d_model=64 model.d_ff=192 )"
            "model.context=32 model.activation=swiglu model.bias=true model.qk_norm=true model.tie_embeddings=false "
            "model.init.residual_scaling=false model.init.std=0.03 model.init.embed_std=0.7 " +
            sets)) {
    initialise(config, layout, seed, values);
  }
  ModelConfig config;
  ParameterLayout layout{config, 100};
  ParameterBuffer<double> values{layout};
};

}  // namespace

TEST_CASE("parameters: each tensor has room of its own") {
  const FirstValues first("");
  Index end = 0, total = 0;
  for (const Parameter& p : first.layout.list()) {
    CHECK(p.offset >= end);
    CHECK(p.offset % 16 == 0);
    end = p.offset + p.size;
    total += p.size;
  }
  CHECK(end <= first.layout.padded_size());
  CHECK(total == first.layout.count());
}

TEST_CASE("parameters: first values have mean 0, the deviation that the scheme says, and fill a uniform one's bounds") {
  const auto xavier = [](double in, double out) { return std::sqrt(2 / (in + out)); };
  const struct {
    const char* scheme;
    std::function<double(double, double)> deviation;  // from the numbers of inputs and outputs
    bool is_uniform = false;
  } schemes[] = {{"gpt2", [](double, double) { return 0.03; }},
                 {"xavier_normal", xavier},
                 {"xavier_uniform", xavier, true},
                 {"kaiming_normal", [](double in, double) { return std::sqrt(2 / in); }}};
  for (const auto& [scheme, deviation, is_uniform] : schemes) {
    FirstValues first(text("model.init.scheme=", scheme));
    for (const Parameter& p : first.layout.list()) {
      if (!p.is_drawn()) continue;
      const bool is_embedding = p.role == Role::embedding;
      const Index parts = p.role == Role::qkv ? 3 : 1, size = p.size / parts;  // q, k and v are matrices of their own
      const auto n = static_cast<double>(size), in = static_cast<double>(p.cols());
      const double expected = is_embedding ? 0.7 : deviation(in, n / in);
      for (Index part = 0; part < parts; ++part) {
        INFO(scheme, ", ", p.name, ", part ", part);
        const double* numbers = first.values.at(p) + part * size;
        double mean = 0, square = 0, largest = 0;
        for (Index i = 0; i < size; ++i) {
          mean += numbers[i] / n;
          square += numbers[i] * numbers[i] / n;
          largest = std::max(largest, std::abs(numbers[i]));
        }
        CHECK(std::abs(mean) <= 4 * expected / std::sqrt(n));
        CHECK(std::abs(std::sqrt(square) / expected - 1) <= 4 / std::sqrt(2 * n));
        if (!is_uniform || is_embedding) continue;
        const double bound = std::sqrt(3.0) * expected;
        CHECK(largest <= bound);
        CHECK(largest >= 0.99 * bound);
      }
    }
  }
}

TEST_CASE("parameters: each matrix and each seed has draws of its own") {
  std::vector<double> first_numbers;
  for (const std::uint64_t seed : {3, 4}) {
    FirstValues first("model.init.scheme=gpt2 model.init.embed_std=0.03", seed);
    for (const Parameter& p : first.layout.list())
      if (p.is_drawn()) first_numbers.push_back(*first.values.at(p));
  }
  CHECK(std::set(first_numbers.begin(), first_numbers.end()).size() == first_numbers.size());
}
