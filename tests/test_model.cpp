// What a model must do: decode as it trains, not depend on threads, drop at random, keep running statistics.
// Its equations and causality are laws of `check`, which test_check_random.py applies to random configs.
#include <numeric>
#include <string>

#include "ops/dropout.h"
#include "tiny_model.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

using enum PlacementKind;
constexpr PlacementKind placements[] = {pre,         post,   sandwich,           peri, res_post,
                                        deepnorm,    keel,   pre_scaled,         mix,  hybrid,
                                        hybrid_star, rezero, PlacementKind::none};
constexpr Position positions[] = {Position::learned, Position::rope, Position::sinusoidal, Position::none};

template <class Real>
std::vector<Real> copy(std::span<const Real> values) {
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("model: dropout keeps the mean, is off outside training, and differs by step, place and sequence") {
  Tape<double> tape;
  tape.reset();
  std::vector<double> ones(40000, 1.0), gradient(40000);
  const Dropout drop{0.3, RandomStream(1, "test"), 10, 0};
  const Var<double> x = tape.parameter(ones.data(), gradient.data(), 400, 100);
  const Var<double> y = dropout(tape, drop, x);
  const double mean = std::accumulate(y.data, y.data + y.size(), 0.0) / 40000;
  CHECK(std::abs(mean - 1) <= 4 * std::sqrt(0.3 / 0.7 / 40000));
  const auto zeros = std::count(y.data, y.data + y.size(), 0.0);
  CHECK(std::abs(static_cast<double>(zeros) / 40000 - 0.3) <= 4 * std::sqrt(0.3 * 0.7 / 40000));
  CHECK_FALSE(std::equal(y.data, y.data + 1000, y.data + 1000));  // sequences of 10 rows of 100
  CHECK(dropout(tape, Dropout{}, x).data == x.data);

  ModelConfig config = tiny_config();
  config.dropout = 0.3;
  TinyModel<double> with(config);
  TinyModel<double> without(tiny_config());
  const RandomBatch batch(2, 5);
  const auto training_loss = [&](std::uint64_t step) {
    return with.loss_and_gradients(batch.training(RandomStream(1, "dropout").at(step)));
  };
  CHECK(with.loss(batch.view()) == without.loss(batch.view()));
  CHECK(with.loss_and_gradients(batch.view()) == without.loss(batch.view()));
  CHECK(training_loss(1) != without.loss(batch.view()));
  CHECK(training_loss(1) == training_loss(1));
  CHECK(training_loss(1) != training_loss(2));
}

TEST_CASE_TEMPLATE("model: decoding with a cache equals the whole forward pass", Real, float, double) {
  for (const PlacementKind placement : placements) {
    for (const Position position : positions) {
      for (const bool qk_norm : {false, true}) {
        ModelConfig config = tiny_config(placement);
        config.position = position;
        config.qk_norm = qk_norm;
        config.context = 12;
        TinyModel<Real> model(config);
        const RandomBatch batch(1, 12);
        const std::span<const std::int32_t> tokens(batch.tokens);
        const std::vector<Real> whole = copy(model.forward(tokens));
        KeyValueCache<Real> cache(config);
        std::vector<Real> decoded;
        for (const auto& [begin, count] :
             {std::pair<std::size_t, std::size_t>{0, 5}, {5, 1}, {6, 1}, {7, 3}, {10, 1}, {11, 1}}) {
          const std::span<const Real> logits = model.forward(tokens.subspan(begin, count), &cache);
          decoded.insert(decoded.end(), logits.begin(), logits.end());
        }
        CHECK(cache.length == 12);
        CHECK(scaled_error(decoded, whole) <= pick<Real>(1e-5, 1e-13));
        CHECK_THROWS(model.forward(tokens.subspan(0, 1), &cache));  // full
      }
    }
  }
}

TEST_CASE("model: same bits at 1, 2, 3 and 4 threads, by every provider of products") {
  for (const GemmProvider provider :
       {GemmProvider::openblas, GemmProvider::native, GemmProvider::reference}) {
    for (const Position position : {Position::learned, Position::rope}) {
      ModelConfig config = tiny_config(position == Position::rope ? peri : pre);
      config.d_model = 48;
      config.d_ff = 200;
      config.n_head = 3;
      config.context = 70;
      config.dropout = 0.1;
      config.position = position;
      config.bias = config.ffn_bias = true;
      config.qk_norm = position == Position::rope;
      const RandomBatch batch(3, 70, 67);
      CHECK(same_bits_at_any_thread_count([&] {
        TinyModel<float> model(config, 67, provider);
        std::vector<float> result;
        const double loss =
            model.loss_and_gradients(batch.training(RandomStream(1, "dropout")), 1, nullptr, &result);
        result.push_back(static_cast<float>(loss));
        result.insert(result.end(), model.gradients.all().begin(), model.gradients.all().end());
        return result;
      }));
    }
  }
}

TEST_CASE("model: batch norm's running statistics move with the step, and evaluation uses them") {
  ModelConfig config = tiny_config(PlacementKind::pre, NormKind::batchnorm);
  TinyModel<double> model(config);
  const RandomBatch batch(2, config.context);
  const double before = model.loss(batch.view());
  model.loss_and_gradients(batch.view());
  CHECK(model.loss(batch.view()) == before);  // a step that is not taken leaves them alone
  model.running.move(model.running.batch);
  CHECK(model.loss(batch.view()) != before);

  // Micro-batch by micro-batch, in their order.
  std::vector<double> old = model.running.values, two;
  for (const double more : {1.0, 3.0})
    for (const double x : model.running.batch) two.push_back(x + more);
  model.running.move(two);
  for (std::size_t i = 0; i < old.size(); ++i) {
    const double want = 0.9 * (0.9 * old[i] + 0.1 * two[i]) + 0.1 * two[old.size() + i];
    CHECK(model.running.values[i] == doctest::Approx(want).epsilon(1e-12));
  }
}
