// A run's record as it is written, and text from a model that has diverged.
#include <cmath>
#include <limits>

#include "io/json.h"
#include "logs/record.h"
#include "messages.h"
#include "train/sampler.h"

using namespace normscope;
using namespace normscope::testing;

TEST_CASE("a summary has the figures of its kind, and null for what is not finite") {
  const ScratchFile file("run.json");
  RunRecord run;
  run.status = status_diverged;
  run.steps = 41;
  run.final_train_loss = run.seconds = 2.5;
  run.growth = std::numeric_limits<double>::infinity();
  run.first_nonfinite = {42, 3, "ffn_out", "", true};
  const auto summary = [&] {
    write_record(file.path, run, {});
    return Json::parse(file.bytes());
  };
  Json json = summary();
  CHECK((json["steps"] == 41 && json["final_train_loss"] == 2.5 && json["blas"]["version"].is_string()));
  CHECK((json["growth"].is_null() && json["final_val_loss"].is_null()));
  CHECK(json["first_nonfinite"] ==
        Json({{"step", 42}, {"layer", 3}, {"site", "ffn_out"}, {"kind", "gradient"}}));
  CHECK(seconds_in(file.path) == 2.5);
  run.status = status_probe;
  run.first_nonfinite.reset();
  json = summary();
  CHECK((!json.contains("seconds") && !json.contains("trajectory_hash") && json.contains("final_val_loss")));
  CHECK(!json.contains("first_nonfinite"));
  for (const char* none : {"", "{", "[]", R"({"seconds": "x"})"}) {
    file.set(none);
    CHECK(!seconds_in(file.path));
  }
}

TEST_CASE("a model whose weights are not finite draws no character, and the error says why") {
  ModelConfig config;
  config.n_layer = config.n_head = 1;
  config.d_model = config.d_ff = 8;
  config.context = 4;
  Model<float> model(config, 5, GemmProvider::reference);
  initialise(config, model.layout(), 1, model.parameters);
  const Token start = 0;
  for (const double temperature : {0.0, 1.0}) {
    CHECK(Sampler(model, {&start, 1}, {.temperature = temperature}).next() < 5);
  }
  model.parameters.all().assign(model.parameters.all().size(), std::nanf(""));
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler(model, {&start, 1}, {.temperature = temperature});
    CHECK_THROWS_WITH_AS(sampler.next(), doctest::Contains("logits are not finite"), Error);
  }
}
