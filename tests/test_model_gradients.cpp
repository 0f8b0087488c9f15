// The whole model's gradients against central differences, in double: every placement, norm and variant.
#include <functional>
#include <string>

#include "config/names.h"
#include "tiny_model.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

// Which FFN activations are positive: a difference across ReLU's kink is no derivative.
struct Masks : TapListener<double> {
  std::vector<bool> positive;
  void on_value(Place place, const double* value, Index rows, Index cols) override {
    if (place.site != Site::ffn_hidden) return;
    for (Index i = 0; i < rows * cols; ++i) positive.push_back(value[i] > 0);
  }
  void on_gradient(Place, const double*, Index, Index) override {}
};

// A planted fault: spoils the gradients that the model computed.
using Fault = std::function<void(const ParameterLayout&, ParameterBlock<double>&)>;

struct GradientError {
  double error = 0;   // |fd - <g, d>| / (|g||d| + 1e-9 loss) in a random direction d
  std::string param;  // whose
};

// The largest error of any parameter tensor, each the least over steps of 1e-2 ... 1e-6 of |W|/|d|.
GradientError worst_gradient_error(const ModelConfig& config, const Fault& fault = {}) {
  TestModel<double> model(config);
  const RandomBatch batch(2, config.context);
  const bool relu = config.activation == Activation::relu;
  Masks at_start;
  const double loss = model.loss_and_gradients(batch.view(), 1, {}, relu ? &at_start : nullptr);
  ParameterBlock<double> gradients = model.gradients;
  if (fault) fault(model.layout(), gradients);
  GradientError worst;
  for (const Parameter& p : model.layout().list()) {
    if (!p.trainable) continue;
    const std::span<const double> g(gradients.at(p), static_cast<std::size_t>(p.size));
    double* w = model.parameters.at(p);
    const std::vector<double> start(w, w + p.size), d = normals<double>(p.size, "direction of " + p.name);
    CAPTURE(p.name);
    if (!fault) CHECK(norm(g) > 0);
    double slope = 0;
    for (std::size_t i = 0; i < d.size(); ++i) slope += g[i] * d[i];
    const auto side = [&](double step, bool* same_masks) {
      for (std::size_t i = 0; i < d.size(); ++i) w[i] = start[i] + step * d[i];
      // Evaluation uses batch norm's running statistics; its gradient is that of the batch's own.
      if (config.norm == NormKind::batchnorm && !relu) return model.loss_and_gradients(batch.view());
      if (!relu) return model.loss(batch.view());
      Masks masks;
      const double moved = model.loss_and_gradients(batch.view(), 1, {}, &masks);
      *same_masks = *same_masks && masks.positive == at_start.positive;
      return moved;
    };
    const double rounding = 32 * std::numeric_limits<double>::epsilon() * loss;
    const bool flat = norm(g) <= rounding;  // as of a bias that a later norm over positions takes off
    double least = std::numeric_limits<double>::infinity(), moved = 0;
    for (const double relative : {1e-2, 1e-3, 1e-4, 1e-5, 1e-6}) {
      const double step = relative * norm(start) / norm(d);
      bool same_masks = true;
      const double change = side(step, &same_masks) - side(-step, &same_masks);
      if (!same_masks) continue;
      moved = std::max(moved, std::abs(change));
      least = std::min(least, std::abs(change / (2 * step) - slope) / (norm(g) * norm(d) + 1e-9 * loss));
    }
    // A gradient of nothing but rounding is right if the loss does not move either; over 1e-9 of it, its last
    // bit would look like an error.
    if (flat && moved <= rounding && std::isfinite(least)) least = 0;
    std::copy(start.begin(), start.end(), w);
    if (!(least <= worst.error)) worst = {least, p.name};
  }
  return worst;
}

constexpr double tolerance = 1e-6;

void check_gradients(const std::string& label, const ModelConfig& config) {
  CAPTURE(label);
  const GradientError worst = worst_gradient_error(config);
  CAPTURE(worst.param);
  CAPTURE(worst.error);
  CHECK_FALSE(!(worst.error <= tolerance));
}

using enum PlacementKind;

}  // namespace

TEST_CASE("model: gradients of every placement, norm and activation equal central differences") {
  const ThreadCount one(1);  // so small a model only waits for its threads
  int legal = 0;
  for (const auto& [placement, placement_name] : names_of(PlacementKind{})) {
    for (const auto& [norm, norm_name] : names_of(NormKind{})) {
      // These placements have no norms: a config settles their norm to none.
      const bool normless = placement == rezero || placement == PlacementKind::none;
      if (normless && norm != NormKind::none) continue;
      for (const auto& [activation, activation_name] : names_of(Activation{})) {
        ModelConfig config = tiny_config(placement, norm);
        config.activation = activation;
        ++legal;
        check_gradients(std::string(placement_name) + ", " + norm_name + ", " + activation_name, config);
      }
    }
  }
  CHECK(legal == (8 * 7 + 2) * 5);
}

TEST_CASE("model: gradients without the residual equal central differences") {
  const ThreadCount one(1);
  for (const auto& [placement, placement_name] : names_of(PlacementKind{})) {
    if (placement == rezero || placement == deepnorm) continue;  // refused: they need their residual
    for (const NormRow& norm : norm_table()) {
      // The other norms let nothing through: gradients of 1e-9 are rounding to a difference.
      if (norm.leaks || norm.has_alpha) continue;
      ModelConfig config = tiny_config(placement, norm.kind);
      config.residual = false;
      check_gradients(std::string(placement_name) + ", " + norm.name, config);
    }
  }
}

TEST_CASE("model: gradients of every variant equal central differences") {
  const ThreadCount one(1);
  const std::pair<const char*, std::function<void(ModelConfig&)>> variants[] = {
      {"biases", [](ModelConfig& c) { c.bias = c.ffn_bias = true; }},
      {"untied", [](ModelConfig& c) { c.tie_embeddings = false; }},
      {"rope", [](ModelConfig& c) { c.position = Position::rope; }},
      {"sinusoidal", [](ModelConfig& c) { c.position = Position::sinusoidal; }},
      {"no positions", [](ModelConfig& c) { c.position = Position::none; }},
      {"qk_norm", [](ModelConfig& c) { c.qk_norm = true; }},
      {"qk_norm, rope, bias",
       [](ModelConfig& c) {
         c.qk_norm = c.bias = true;
         c.position = Position::rope;
       }},
      {"relu", [](ModelConfig& c) { c.activation = Activation::relu; }},
      {"gelu_tanh", [](ModelConfig& c) { c.activation = Activation::gelu_tanh; }},
      {"silu", [](ModelConfig& c) { c.activation = Activation::silu; }},
      {"swiglu", [](ModelConfig& c) { c.activation = Activation::swiglu; }},
      {"swiglu with bias",
       [](ModelConfig& c) {
         c.activation = Activation::swiglu;
         c.ffn_bias = true;
       }},
      {"eps outside", [](ModelConfig& c) { c.norm_eps_outside = true, c.norm_eps = 0.1; }},
      {"no affine", [](ModelConfig& c) { c.norm_affine = false; }},
      {"no norm bias", [](ModelConfig& c) { c.norm_bias = false; }},
      {"one head", [](ModelConfig& c) { c.n_head = 1; }},
      {"list",
       [](ModelConfig& c) {
         c.norm_placement = {peri, deepnorm};
       }},
      {"mix of three", [](ModelConfig& c) { c.n_layer = 3, c.norm_placement = {mix}; }},
  };
  for (const auto& [label, change] : variants) {
    for (const PlacementKind placement : {pre, post}) {
      ModelConfig config = tiny_config(placement);
      change(config);
      check_gradients(label, config);
    }
  }
}

namespace {

// The gradients of the same weights under another config: the backward of a formula that is not the
// forward's.
Fault backward_of(const ModelConfig& other) {
  return [other](const ParameterLayout& layout, ParameterBlock<double>& gradients) {
    TestModel<double> model(other);
    model.loss_and_gradients(RandomBatch(2, other.context).view());
    for (const Parameter& p : layout.list()) {
      const int same = model.layout().find(p.name);  // rmsnorm has no bias
      if (same == no_parameter) continue;
      std::copy_n(model.gradients.at(model.layout().list()[static_cast<std::size_t>(same)]), p.size,
                  gradients.at(p));
    }
  };
}

}  // namespace

TEST_CASE("model: the difference test catches a wrong gradient of any tensor, and a NaN") {
  const ThreadCount one(1);
  ModelConfig config = tiny_config(sandwich);  // with every kind of tensor
  config.norm_placement = {peri, rezero};
  config.activation = Activation::swiglu;
  config.bias = config.ffn_bias = config.qk_norm = true;
  config.tie_embeddings = false;
  const TestModel<double> model(config);
  REQUIRE(worst_gradient_error(config).error <= tolerance);
  int tensors = 0;
  for (const Parameter& p : model.layout().list()) {
    CAPTURE(p.name);
    const auto caught = [&](double factor, Index elements) {
      const GradientError found = worst_gradient_error(config, [&](const auto&, auto& gradients) {
        for (Index i = 0; i < elements; ++i) gradients.at(p)[i] *= factor;
      });
      return !(found.error <= tolerance) && found.param == p.name;
    };
    CHECK(caught(1.01, p.size));
    CHECK(caught(0, p.size));
    CHECK(caught(std::numeric_limits<double>::quiet_NaN(), 1));
    ++tensors;
  }
  CHECK(tensors > 30);
}

TEST_CASE("model: the difference test catches the backward of another formula") {
  const ThreadCount one(1);
  using Change = std::function<void(ModelConfig&)>;
  const std::pair<const char*, Change> faults[] = {
      {"gelu by the tanh form", [](ModelConfig& c) { c.activation = Activation::gelu_tanh; }},
      {"another epsilon", [](ModelConfig& c) { c.norm_eps = 1e-3; }},
      {"epsilon outside the root", [](ModelConfig& c) { c.norm_eps_outside = true; }},
      {"rmsnorm for layernorm", [](ModelConfig& c) { c.norm = NormKind::rmsnorm; }},
      {"the 1/sqrt(l) of pre_scaled forgotten", [](ModelConfig& c) { c.norm_placement = {pre}; }},
  };
  for (const auto& [label, change] : faults) {
    CAPTURE(label);
    ModelConfig config = tiny_config(pre_scaled), other = config;
    change(other);
    CHECK_FALSE(worst_gradient_error(config, backward_of(other)).error <= tolerance);
    CHECK(worst_gradient_error(config, backward_of(config)).error <= tolerance);
  }
}

TEST_CASE("model: gradients add up over passes, and scale with the cotangent") {
  TestModel<double> model(tiny_config(sandwich));
  const RandomBatch batch(2, 5);
  model.loss_and_gradients(batch.view());
  const std::vector<double> once = model.gradients.all();
  model.loss_and_gradients(batch.view(), 0.5);
  std::vector<double> want = once;
  for (double& g : want) g *= 1.5;
  CHECK(scaled_error(model.gradients.all(), want) <= 1e-14);
}

TEST_CASE("model: listening changes no bit, and the steady state allocates nothing") {
  TestModel<float> model(tiny_config(peri));
  const RandomBatch batch(3, 5);
  model.loss_and_gradients(batch.view());
  const std::vector<float> alone = model.gradients.all();
  struct : TapListener<float> {
    void on_value(Place, const float*, Index, Index) override {}
    void on_gradient(Place, const float*, Index, Index) override {}
  } listener;
  int allocations = 0;
  for (int step = 0; step < 4; ++step) {
    std::fill(model.gradients.all().begin(), model.gradients.all().end(), 0.0f);
    model.loss_and_gradients(batch.view(), 1, {}, &listener);
    CHECK(same_bits(alone, model.gradients.all()));
    if (step == 0) allocations = model.tape.arena().system_allocations();
  }
  CHECK(model.tape.arena().system_allocations() == allocations);
}
