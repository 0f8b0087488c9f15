// The optimiser's hyperparameters, from a config to the kernel.
#include "tiny_model.h"
#include "train/muon.h"
#include "train/optimizer.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

// What the first update adds to weights that are all 0, at gradients of 1e-3 in size.
template <class Real>
std::vector<double> first_update(const TrainConfig& train) {
  const ParameterLayout layout(tiny_config(), tiny_vocab);
  ParameterBuffer<Real> parameters(layout), gradients(layout);
  const std::vector<double> drawn = normals<double>(layout.count(), "gradient", 1e-3);
  std::copy(drawn.begin(), drawn.end(), gradients.all().begin());
  Optimizer<Real> optimizer(train, layout);
  optimizer.update(1, 1e-3, 1, gradients, parameters);
  return {parameters.all().begin(), parameters.all().end()};
}

}  // namespace

TEST_CASE("optimiser: AdamW in float is AdamW in double for any beta below 1") {
  for (const double below_one : {0.5, 1e-1, 1e-3, 1e-5, 1e-6, 1e-7, 2e-8, 1e-10}) {
    TrainConfig train;
    train.beta1 = train.beta2 = 1 - below_one;
    CAPTURE(below_one);
    CHECK(scaled_error(first_update<float>(train), first_update<double>(train)) <= 1e-6);
  }
}

TEST_CASE("Muon: a gradient of 0 has the direction 0, and is no division of 0 by 0") {
  const std::vector<double> gradient(12);
  std::vector<double> momentum(12), direction(12);
  muon_direction(TrainConfig{}, 1, gradient.data(), momentum.data(), Matrix<double>{direction.data(), 3, 4});
  CHECK(direction == std::vector<double>(12));
}

TEST_CASE("moments too small for normal numbers become 0, where a step does not depend on them") {
  float w = 1, m = 1e-38f, v = 1e-38f;
  const auto update = [&](const UpdateRule<float>& rule) {
    const float gradient = 0;
    kernels<float>().update(1, rule, &gradient, &w, &m, &v);
  };
  update(Sgd<float>{.gradient_scale = 1, .momentum = 0.5f, .decay = 1, .lr = 1});
  CHECK(m == 0);
  for (const float eps : {1e-8f, 1e-20f}) {  // with the smaller one the step was lr m / eps
    w = 0, m = 1e-20f, v = 1e-39f;
    update(AdamW<float>{.gradient_scale = 1,
                        .beta1 = 0.9f,
                        .beta2 = 0.99f,
                        .one_minus_beta1 = 0.1f,
                        .one_minus_beta2 = 0.01f,
                        .eps = eps,
                        .decay = 1,
                        .step_size = 1e-3f,
                        .inv_sqrt_correction2 = 1});
    CHECK((v == 0) == (eps == 1e-8f));
    CHECK(std::abs(w) < 1);
  }
}

TEST_CASE("clipping: the limit over the norm, 0 for an infinite norm, 1 for NaN and where it is off") {
  CHECK(clip_factor(1, 4) == 0.25);
  CHECK(clip_factor(1, 0.5) == 1);
  CHECK(clip_factor(1, INFINITY) == 0);
  CHECK(clip_factor(1, NAN) == 1);
  CHECK(clip_factor(0, INFINITY) == 1);
}
