// The whole model's gradients against exact derivatives of the equations: every placement, norm and activation. The
// other keys are drawn at random, by test_check_random.py.
#include <functional>
#include <string>

#include "check/check.h"
#include "tiny_model.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

// A planted fault: spoils the gradients that the model computed.
using Fault = std::function<void(const ParameterLayout&, ParameterBuffer<double>&)>;

// The largest error of any parameter tensor's gradient (check/check.h).
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
  const Outcome outcome = compare_with_derivatives(model, batch.view(), gradients);
  REQUIRE(outcome.results.size() == 1);
  return outcome.results[0];
}

}  // namespace

TEST_CASE("model: gradients of every pair of placement, norm and activation equal exact derivatives") {
  const ThreadCount one(1);  // so small a model is slower with threads
  const Names activations = enum_names(Activation{});
  CHECK(norm_table().size() >=
        activations.size());  // else a placement or a norm would meet only some of them
  CHECK(placement_table().size() >= activations.size());
  std::size_t number = 0;
  for (const Placement& placement : placement_table()) {
    std::size_t activation = number++;
    for (const NormRow& norm : norm_table()) {
      const std::string sets = text("model.norm_placement=", placement.name, " model.norm=", norm.name,
                                    " model.activation=", activations[activation++ % activations.size()]);
      const Result worst = worst_gradient_error(tiny_config(sets));
      INFO(sets, ", ", worst.note, ": error ", worst.error, ", limit ", worst.limit);
      CHECK(worst.holds());
    }
  }
}

TEST_CASE("model: the derivative test catches a wrong gradient of any tensor, and a NaN") {
  const ThreadCount one(1);
  const ModelConfig config = tiny_config(  // with every kind of tensor
      R"(model.norm_placement=["peri","rezero"] model.activation=swiglu model.bias=true model.qk_norm=true )"
      "model.final_norm=true model.tie_embeddings=false");
  const TinyModel<double> model(config);
  REQUIRE(worst_gradient_error(config).holds());
  int tensors = 0;
  for (const Parameter& p : model.layout().list()) {
    CAPTURE(p.name);
    const auto caught = [&](double factor, Index elements) {
      const Result worst = worst_gradient_error(config, [&](const auto&, auto& gradients) {
        for (Index i = 0; i < elements; ++i) gradients.at(p)[i] *= factor;
      });
      return !worst.holds() && worst.note == p.name;
    };
    CHECK(caught(1 + 1e-6, p.size));
    CHECK((++tensors % 2 == 0 ? caught(0, p.size) : caught(std::numeric_limits<double>::quiet_NaN(), 1)));
  }
  CHECK(tensors > 30);
}
