// Properties of a model: it decodes as it trains, drops at random and keeps running statistics. Its equations and
// causality are laws of `check`, which test_check_random.py applies to random configs; test_cli_determinism.py and
// test_digits.py show that its bits do not depend on threads.
#include <numeric>

#include "ops/dropout.h"
#include "ops/query_key_norm.h"
#include "tiny_model.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

template <class Real>
std::vector<Real> copy(std::span<const Real> values) {
  return {values.begin(), values.end()};
}

// y, dx and dgain of the config's norm, or of query_key_norm, at numbers of this size.
template <class Real>
Outputs<Real> norm_outputs(const ModelConfig& config, bool is_query_key, double size) {
  const Index rows = 10, C = 24, n_gains = is_query_key ? C / 3 / config.n_head : C;
  std::vector<Real> x = floats<Real>(rows * C, "x", 0.2 * size), gain = floats<Real>(n_gains, "gain", 1, 0.3);
  Outputs<Real> out = {{"dx", std::vector<Real>(x.size())}, {"dgain", std::vector<Real>(gain.size())}};
  Tape<Real> tape;
  const Var<Real> in = tape.parameter(x.data(), out["dx"].data(), rows, C);
  const Real half = 0.5;
  const Var<Real> scalar = tape.constant(&half, 1, 1);  // alpha and shift, for norms that learn one
  const NormVars<Real> vars{tape.parameter(gain.data(), out["dgain"].data(), 1, n_gains), {}, scalar, scalar};
  Pass pass;
  pass.context = config.context;
  const Real eps = static_cast<Real>(config.norm_eps);
  const Var<Real> y = is_query_key ? query_key_norm(tape, eps, config.n_head, in, vars.weight, vars.weight)
                                   : apply_norm(tape, config, vars, pass, in);
  tape.backward_from(y, floats<Real>(rows * C, "dy").data());
  out["y"] = {y.data, y.data + y.size()};
  return out;
}

}  // namespace

TEST_CASE("model: dropout keeps the mean, differs by place and sequence, and is off outside training") {
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

  TinyModel<double> with(tiny_config("model.dropout=0.3")), without(tiny_config());
  const RandomBatch batch(2, 5);
  CHECK(with.loss(batch.view()) == without.loss(batch.view()));
  CHECK(with.loss_and_gradients(batch.view()) == without.loss(batch.view()));
}

TEST_CASE_TEMPLATE("model: decoding with a cache equals the whole forward pass", Real, float, double) {
  for (const Placement& placement : placement_table()) {
    for (const char* position : enum_names(Position{})) {
      for (const char* qk_norm : {"false", "true"}) {
        const std::string sets = text("model.context=12 model.norm_placement=", placement.name,
                                      " model.position=", position, " model.qk_norm=", qk_norm);
        CAPTURE(sets);
        const ModelConfig config = tiny_config(sets);
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

TEST_CASE("model: batch norm's running statistics move by one micro-batch after the other") {
  TinyModel<double> model(tiny_config("model.norm=batchnorm"));
  model.loss_and_gradients(RandomBatch(2, model.config().context).view());
  std::vector<double> old = model.running.values, two;
  for (const double more : {1.0, 3.0})
    for (const double x : model.running.batch) two.push_back(x + more);
  model.running.move(two);
  for (std::size_t i = 0; i < old.size(); ++i) {
    const double expected = 0.9 * (0.9 * old[i] + 0.1 * two[i]) + 0.1 * two[old.size() + i];
    CHECK(model.running.values[i] == doctest::Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("model: norms of rows of any size equal those in double, forward and backward") {
  for (const NormRow& row : norm_table()) {
    if (!row.has_statistics()) continue;
    ModelConfig config = tiny_config(text("model.norm=", row.name));
    for (const bool is_query_key : {false, true}) {
      for (const double size : {1e-30, 1e-20, 3e-19, 1.0, 3e18, 1e20, 1e30}) {
        for (const auto& [eps, outside] :
             {std::pair(0.0, false), {1e-20, true}, {1e-5, false}, {1e-5, true}}) {
          config.norm_eps = eps, config.norm_eps_outside = outside;
          INFO(row.name, ", query-key norm ", is_query_key, ", size ", size, ", eps ", eps);
          const auto compute = [&](auto real) {
            return norm_outputs<decltype(real)>(config, is_query_key, size);
          };
          compare_with_twin(compute, 1e-5);
        }
      }
    }
  }
}
