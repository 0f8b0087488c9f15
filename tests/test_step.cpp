// The sum of a step's micro-batches.
#include "tiny_model.h"
#include "train/ranks.h"

using namespace normscope;
using namespace normscope::testing;

TEST_CASE("step: gradients of micro-batches are added in their order") {
  const ParameterLayout layout(tiny_config(), tiny_vocab);
  ParameterBlock<float> gradients(layout);
  GradientSum sum(layout.block_size(), one_rank());
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
