// Properties of a model: it decodes as it trains, does not depend on threads, drops at random and keeps
// running statistics. Its equations and causality are laws of `check`, which test_check_random.py applies to
// random configs.
#include <numeric>
#include <string>

#include "ops/dropout.h"
#include "ops/query_key_norm.h"
#include "tiny_model.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

using enum PlacementKind;
constexpr Position positions[] = {Position::learned, Position::rope, Position::sinusoidal, Position::none};

template <class Real>
std::vector<Real> copy(std::span<const Real> values) {
  return {values.begin(), values.end()};
}

// y, dx and dgain of the config's norm of x times `scale`, or of query_key_norm; both Reals compute on the
// same floats.
template <class Real>
std::vector<std::vector<Real>> normed(const ModelConfig& config, bool is_query_key, float scale) {
  const Index rows = 10, C = 24, n_gains = is_query_key ? C / 3 / config.n_head : C;
  const std::vector<float> unit = normals<float>(rows * C, "x", 0.2);
  std::vector<Real> x, dx(rows * C), gain = normals<Real>(n_gains, "gain", 1, 0.3), dgain(n_gains);
  for (const float value : unit) x.push_back(static_cast<Real>(value * scale));
  Tape<Real> tape;
  const Var<Real> in = tape.parameter(x.data(), dx.data(), rows, C);
  const NormVars<Real> vars{tape.parameter(gain.data(), dgain.data(), 1, n_gains), {}, {}, {}};
  const Real eps = static_cast<Real>(config.norm_eps);
  Pass pass;
  pass.context = config.context;
  const Var<Real> y = is_query_key ? query_key_norm(tape, eps, config.n_head, in, vars.weight, vars.weight)
                                   : apply_norm(tape, config, vars, pass, in);
  tape.backward_from(y, normals<Real>(rows * C, "dy").data());
  return {{y.data, y.data + y.size()}, dx, dgain};
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
  for (const Placement& placement : placement_table()) {
    for (const Position position : positions) {
      for (const bool qk_norm : {false, true}) {
        CAPTURE(std::string(placement.name));
        ModelConfig config = tiny_config(placement.kind);
        config.position = position;
        config.qk_norm = qk_norm;
        config.context = 12;
        TinyModel<Real> model(config);
        model.branch_progress = 1.5;  // the second block's branches have a factor of 0.75
        const RandomBatch batch(1, 12);
        const std::span<const std::int32_t> tokens(batch.tokens);
        const std::vector<Real> whole = copy(model.forward(tokens));
        std::vector<Real> trained;
        model.loss_and_gradients(batch.view(), 1, nullptr, &trained);
        CHECK(scaled_error(whole, trained) <= pick<Real>(1e-5, 1e-13));
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

TEST_CASE("model: norms of rows of any size equal those in double, forward and backward") {
  for (const NormRow& row : norm_table()) {
    ModelConfig config = tiny_config(pre, row.kind);
    for (const bool is_query_key : {false, true}) {
      for (const float scale : {1e-30f, 1e-20f, 3e-19f, 1.0f, 3e18f, 1e20f, 1e30f}) {
        for (const auto& [eps, outside] :
             {std::pair(0.0, false), {1e-20, true}, {1e-5, false}, {1e-5, true}}) {
          if (!row.has_statistics()) continue;
          config.norm_eps = eps, config.norm_eps_outside = outside;
          const auto got = normed<float>(config, is_query_key, scale);
          const auto want = normed<double>(config, is_query_key, scale);
          CAPTURE(std::string(row.name));
          CAPTURE(is_query_key);
          CAPTURE(scale);
          CAPTURE(eps);
          for (std::size_t i = 0; i < got.size(); ++i) CHECK(scaled_error(got[i], want[i]) <= 1e-5);
        }
      }
    }
  }
}

TEST_CASE("model: a stream that grew to 1e19 in blocks without norms is normalised by the next") {
  ModelConfig config = tiny_config();
  config.n_layer = 34, config.d_model = 64, config.n_head = 16, config.d_ff = 256,
  config.activation = Activation::relu;
  config.norm_placement.assign(33, {PlacementKind::none});
  config.norm_placement.push_back({pre});
  config.position = Position::none, config.tie_embeddings = false;
  config.init = {.scheme = InitScheme::kaiming_normal, .embed_std = 1, .residual_scaling = false};
  TinyModel<float> model(config);
  const RandomBatch batch(2, config.context);
  SiteCopies<float> sites;
  model.loss(batch.view(), &sites);
  for (const auto& [id, rows, cols, x] : sites.values) {
    const double rms = norm(x) / std::sqrt(static_cast<double>(x.size()));
    if (id == SiteId{33, Site::stream}) CHECK(rms > 5e18);
    if (id == SiteId{34, Site::attn_in}) CHECK(rms > 0.5);
  }
}
