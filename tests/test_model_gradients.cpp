// The whole model's gradients against central differences, in double: every placement, norm and variant.
#include <functional>
#include <string>

#include "check/check.h"
#include "tiny_model.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

// A planted fault: spoils the gradients that the model computed.
using Fault = std::function<void(const ParameterLayout&, ParameterBuffer<double>&)>;

// The largest error of any parameter tensor's gradient (check/check.h). All of them have a verdict.
Result worst_gradient_error(const ModelConfig& config, const Fault& fault = {}) {
  TinyModel<double> model(config);
  const RandomBatch batch(2, config.context);
  model.loss_and_gradients(batch.view());
  ParameterBuffer<double> gradients = model.gradients;
  if (fault) fault(model.layout(), gradients);
  for (const Parameter& p : model.layout().list()) {
    CAPTURE(p.name);
    if (!fault) CHECK(norm(std::span<const double>(gradients.at(p), static_cast<std::size_t>(p.size))) > 0);
  }
  const Outcome outcome = compare_with_differences(model, batch.view(), gradients);
  REQUIRE(outcome.results.size() == 1);
  const std::size_t all = model.layout().list().size();
  CHECK(outcome.results[0].law.starts_with(text("gradients of ", all, " of ", all, " tensors")));
  return outcome.results[0];
}

void check_gradients(const std::string& label, const ModelConfig& config) {
  CAPTURE(label);
  const Result worst = worst_gradient_error(config);
  CAPTURE(worst.note);
  CAPTURE(worst.error);
  CAPTURE(worst.limit);
  CHECK(worst.holds());
}

using enum PlacementKind;

}  // namespace

TEST_CASE("model: gradients of every placement, norm and activation equal central differences") {
  const ThreadCount one(1);  // so small a model is slower with threads
  std::ptrdiff_t tested = 0, with_norms = 0;
  for (const Placement& placement : placement_table()) {
    with_norms += placement.has_norms();
    for (const NormRow& norm : norm_table()) {
      // A config settles the norm of a placement without norms to none.
      if (!placement.has_norms() && norm.kind != NormKind::none) continue;
      for (std::size_t i = 0; i < enum_names(Activation{}).size(); ++i) {
        ModelConfig config = tiny_config(placement.kind, norm.kind);
        config.activation = static_cast<Activation>(i);
        ++tested;
        check_gradients(text(placement.name, ", ", norm.name, ", ", name_of(config.activation)), config);
      }
    }
  }
  const std::ptrdiff_t norms = std::ssize(norm_table()), without = std::ssize(placement_table()) - with_norms;
  CHECK(with_norms >= 12);
  CHECK(tested == (with_norms * norms + without) * std::ssize(enum_names(Activation{})));
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
      {"swiglu with bias",
       [](ModelConfig& c) {
         c.activation = Activation::swiglu;
         c.ffn_bias = true;
       }},
      {"eps outside", [](ModelConfig& c) { c.norm_eps_outside = true, c.norm_eps = 0.1; }},
      {"no affine", [](ModelConfig& c) { c.norm_affine = false; }},
      {"no residual", [](ModelConfig& c) { c.residual = false; }},
      {"no norm bias", [](ModelConfig& c) { c.norm_bias = false; }},
      {"one head", [](ModelConfig& c) { c.n_head = 1; }},
      {"list",
       [](ModelConfig& c) {
         c.norm_placement = {peri, deepnorm};
       }},
      {"norm on the embeddings", [](ModelConfig& c) { c.embed_norm = true; }},
      {"inner norms", [](ModelConfig& c) { c.inner_norm = true; }},
      {"inner norms, swiglu, batch norm",
       [](ModelConfig& c) {
         c.inner_norm = true, c.activation = Activation::swiglu, c.norm = NormKind::batchnorm;
       }},
      {"qkv_norm, rope", [](ModelConfig& c) { c.qkv_norm = true, c.position = Position::rope; }},
      {"branches times L^-0.5",
       [](ModelConfig& c) {
         c.branch_scale = {1, -0.5};
       }},
      {"SkipInit", [](ModelConfig& c) { c.branch_scale_learned = LearnedScale::scalar; }},
      {"LayerScale, sandwich",
       [](ModelConfig& c) {
         c.branch_scale = {0.3, 0}, c.branch_scale_learned = LearnedScale::vector,
         c.norm_placement = {sandwich};
       }},
      {"a placement for each sublayer",
       [](ModelConfig& c) {
         c.norm_placement = {{keel, res_post}};
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

TEST_CASE("model: the difference test catches a wrong gradient of any tensor, and a NaN") {
  const ThreadCount one(1);
  ModelConfig config = tiny_config(sandwich);  // with every kind of tensor
  config.norm_placement = {peri, rezero};
  config.activation = Activation::swiglu;
  config.bias = config.ffn_bias = config.qk_norm = true;
  config.tie_embeddings = false;
  const TinyModel<double> model(config);
  REQUIRE(worst_gradient_error(config).holds());
  int tensors = 0;
  for (const Parameter& p : model.layout().list()) {
    CAPTURE(p.name);
    const auto caught = [&](double factor, Index elements) {
      const Result found = worst_gradient_error(config, [&](const auto&, auto& gradients) {
        for (Index i = 0; i < elements; ++i) gradients.at(p)[i] *= factor;
      });
      return !found.holds() && found.note == p.name;
    };
    CHECK(caught(1.001, p.size));
    CHECK(caught(0, p.size));
    CHECK(caught(std::numeric_limits<double>::quiet_NaN(), 1));
    ++tensors;
  }
  CHECK(tensors > 30);
}

TEST_CASE("model: gradients add up over passes, and scale with the cotangent") {
  TinyModel<double> model(tiny_config(sandwich));
  const RandomBatch batch(2, 5);
  model.loss_and_gradients(batch.view());
  const std::vector<double> once = model.gradients.all();
  model.loss_and_gradients(batch.view(), 0.5);
  std::vector<double> want = once;
  for (double& g : want) g *= 1.5;
  CHECK(scaled_error(model.gradients.all(), want) <= 1e-14);
}
