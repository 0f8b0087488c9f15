// The sum of a step's micro-batches, and passes during the branch warm-up.
#include "tiny_model.h"
#include "train/gradient_sum.h"
#include "train/sampler.h"
#include "train/step.h"

using namespace normscope;
using namespace normscope::testing;

TEST_CASE("step: gradients of micro-batches are added in their order") {
  const ParameterLayout layout(tiny_config(), tiny_vocab);
  ParameterBuffer<float> gradients(layout);
  GradientSum sum(layout.padded_size(), one_rank());
  const auto value = [](Index micro) { return micro == 0 ? 1e8f : 3.0f; };
  for (const int step : {1, 2}) {  // the second starts from zero
    CAPTURE(step);
    for (Index micro = 0; micro < 5; ++micro) {
      std::ranges::fill(gradients.all(), value(micro));
      sum.add(gradients.all(), micro, 1);
    }
    std::ranges::fill(gradients.all(), 0.0f);
    sum.finish(gradients.all());
    const float in_order = (((value(0) + value(1)) + value(2)) + value(3)) + value(4);
    CHECK(in_order != value(0) + 4 * value(1));
    for (const Parameter& p : layout.list()) {
      CHECK(gradients.at(p)[0] == in_order);
      CHECK(gradients.at(p)[p.size - 1] == in_order);
    }
  }
}

TEST_CASE(
    "step: during the branch warm-up losses, gradients, logits and samples are those of scaled branches") {
  const ModelConfig config = tiny_config();
  TinyModel<float> warming(config), whole(config), expected(tiny_config("model.branch_scale_learned=scalar"));
  warming.branch_progress = 1.5;  // block 1's factor is 1, block 2's 0.75
  for (const Parameter& p : expected.layout().list()) {
    if (p.role == Role::branch_scale) {
      *expected.parameters.at(p) = p.layer == 1 ? 1.0f : 0.75f;
    } else {
      const Parameter& same = warming.layout()[warming.layout().find(p.name)];
      std::copy_n(warming.parameters.at(same), p.size, expected.parameters.at(p));
    }
  }
  const RandomBatch batch(2, config.context);
  const std::vector<Token> text = integers(23, tiny_vocab, "text");
  const std::span<const Token> window(text.data(), 4);
  const auto results = [&](Model<float>& model) {
    std::vector<float> values = {static_cast<float>(model.loss(batch.view())),
                                 static_cast<float>(*evaluate(model, text, 2))};
    KeyValueCache<float> cache(model.config());
    for (KeyValueCache<float>* used : {static_cast<KeyValueCache<float>*>(nullptr), &cache}) {
      const std::span<const float> logits = model.forward(window, used);
      values.insert(values.end(), logits.begin(), logits.end());
    }
    Sampler sampler(model, window, {});
    for (int i = 0; i < 50; ++i) values.push_back(static_cast<float>(sampler.next()));
    return values;
  };
  CHECK(same_bits(results(warming), results(expected)));
  CHECK(largest_difference(results(warming), results(whole)) > 1e-3);
  CHECK(warming.loss_and_gradients(batch.view()) == expected.loss_and_gradients(batch.view()));
  for (const Parameter& p : warming.layout().list()) {
    const float* gradient = expected.gradients.at(expected.layout()[expected.layout().find(p.name)]);
    CHECK(std::memcmp(warming.gradients.at(p), gradient, static_cast<std::size_t>(p.size) * sizeof(float)) ==
          0);
  }
}
