// The whole model's gradients against central differences, in double: every placement, norm and variant.
#include <functional>
#include <string>

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

// The largest error of any parameter tensor: |fd - <g, d>| / (|g||d| + 1e-9 loss) in a random direction d,
// the least over steps of 1e-2 ... 1e-6 of |W|/|d|.
double worst_gradient_error(const ModelConfig& config) {
  TestModel<double> model(config);
  const RandomBatch batch(2, config.context);
  const bool relu = config.activation == Activation::relu;
  Masks at_start;
  const double loss = model.loss_and_gradients(batch.view(), 1, {}, relu ? &at_start : nullptr);
  const ParameterBlock<double> gradients = model.gradients;
  double worst = 0;
  for (const Parameter& p : model.layout().list()) {
    if (!p.trainable) continue;
    const std::span<const double> g(gradients.at(p), static_cast<std::size_t>(p.size));
    double* w = model.parameters.at(p);
    const std::vector<double> start(w, w + p.size), d = normals<double>(p.size, "direction of " + p.name);
    CAPTURE(p.name);
    CHECK(norm(g) > 0);
    double slope = 0;
    for (std::size_t i = 0; i < d.size(); ++i) slope += g[i] * d[i];
    const auto side = [&](double step, bool* same_masks) {
      for (std::size_t i = 0; i < d.size(); ++i) w[i] = start[i] + step * d[i];
      // Evaluation uses batch norm's running statistics; its gradient is that of the batch's own.
      if (config.norm == NormKind::batchnorm) return model.loss_and_gradients(batch.view());
      if (!relu) return model.loss(batch.view());
      Masks masks;
      const double moved = model.loss_and_gradients(batch.view(), 1, {}, &masks);
      *same_masks = *same_masks && masks.positive == at_start.positive;
      return moved;
    };
    double least = std::numeric_limits<double>::infinity();
    for (const double relative : {1e-2, 1e-3, 1e-4, 1e-5, 1e-6}) {
      const double step = relative * norm(start) / norm(d);
      bool same_masks = true;
      const double difference = (side(step, &same_masks) - side(-step, &same_masks)) / (2 * step);
      if (!same_masks) continue;
      least = std::min(least, std::abs(difference - slope) / (norm(g) * norm(d) + 1e-9 * loss));
    }
    std::copy(start.begin(), start.end(), w);
    if (!(least <= worst)) worst = least;
  }
  return worst;
}

void check_gradients(const std::string& label, const ModelConfig& config) {
  CAPTURE(label);
  CHECK_FALSE(!(worst_gradient_error(config) <= 1e-6));
}

using enum PlacementKind;
constexpr PlacementKind placements[] = {pre,      post,       sandwich, peri,   res_post,
                                        deepnorm, pre_scaled, mix,      rezero, PlacementKind::none};

}  // namespace

TEST_CASE("model: gradients of every placement and norm equal central differences") {
  for (const PlacementKind placement : placements) {
    for (const NormRow& norm : norm_table()) {
      const std::string label = std::to_string(static_cast<int>(placement)) + ", " + norm.name;
      ModelConfig config = tiny_config(placement, norm.kind);
      check_gradients(label, config);
      if (placement == rezero) continue;  // needs its residual
      // Without the residual the other norms let nothing through: gradients of 1e-9 are rounding to a
      // difference.
      if (norm.leaks || norm.has_alpha) continue;
      config.residual = false;
      check_gradients(label + " without residual", config);
    }
  }
}

TEST_CASE("model: gradients of every variant equal central differences") {
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
