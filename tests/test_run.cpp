// A run's record as it is written and read, the steps before a divergence, text from a model that has
// diverged.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "run/record.h"
#include "train/divergence.h"
#include "train/sampler.h"

namespace fs = std::filesystem;
using namespace normscope;

namespace {

struct Summary {
  fs::path path = fs::temp_directory_path() / ("normscope-" + std::to_string(::getpid()) + ".json");
  ~Summary() { fs::remove(path); }
  std::string bytes() const { return read_file(path.string()); }
  void set(std::string_view bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
};

RunRecord diverged_run() {
  RunRecord run;
  run.status = status_diverged;
  run.steps = 41;
  run.final_train_loss = 2.5;
  run.growth = std::numeric_limits<double>::infinity();
  run.best_step = 40;
  run.blas_kernel = "Zen";
  run.first_nonfinite = {.step = 42, .layer = 3, .site = "ffn_out", .param = "", .in_gradient = true};
  run.story = "step 42: it broke";
  return run;
}

std::vector<SiteRow> sites_with(double rms) {
  std::vector<SiteRow> rows;
  for (const Place place : places_of(2)) {
    rows.push_back({place, 0.5, rms, 3 * rms, 7, rms, rms, rms, 9});
    rms *= 2;
  }
  return rows;
}

}  // namespace

TEST_CASE("a record is read as it was written, and written again to the same bytes") {
  const Summary file;
  write_record(file.path.string(), diverged_run());
  const std::string bytes = file.bytes();
  RunRecord run;
  REQUIRE(read_record(file.path.string(), run));
  CHECK(run.steps == 41);
  CHECK(run.final_train_loss == 2.5);
  CHECK(!run.growth.has_value());  // null
  CHECK(run.best_step == 40);
  CHECK(run.blas_kernel == "Zen");
  CHECK(run.first_nonfinite->step == 42);
  CHECK(run.first_nonfinite->site == "ffn_out");
  CHECK(run.first_nonfinite->in_gradient);
  CHECK(run.story == "step 42: it broke");
  write_record(file.path.string(), run);
  CHECK(file.bytes() == bytes);
}

TEST_CASE("every field has a key of its own, and a summary has those that are of its kind") {
  const Summary file;
  RunRecord run = diverged_run();
  const auto has = [&](const char* key) {
    write_record(file.path.string(), run);
    return file.bytes().find(std::string("\"") + key + "\": ") != std::string::npos;
  };
  CHECK((has("story") && has("first_nonfinite") && has("seconds") && has("kernel")));
  run.first_nonfinite.reset();
  run.status = status_done;
  CHECK((!has("story") && !has("first_nonfinite") && has("seconds")));
  run.status = status_probe;
  CHECK((!has("seconds") && !has("trajectory_hash") && has("final_val_loss")));
  std::set<std::string> keys;
  for (const RecordField& field : record_fields()) keys.insert(field.key);
  CHECK(keys.size() == record_fields().size());
}

TEST_CASE("fields of a damaged summary that are not what they should be are left alone") {
  const Summary file;
  file.set(R"({"status": 3, "steps": -1, "params": 1e300, "vocab": "x", "growth": [], "best_step": null,
               "blas": "none", "first_nonfinite": 7, "seconds": 2, "unknown": 1})");
  RunRecord run;
  CHECK(read_record(file.path.string(), run));
  CHECK((run.status.empty() && run.steps == 0 && run.params == 0 && run.vocab == 0));
  CHECK((!run.growth && !run.best_step && !run.first_nonfinite));
  CHECK(run.seconds == 2);
  for (const char* no_object : {"", "{", "[]", "3", "null"}) {
    file.set(no_object);
    CHECK(!read_record(file.path.string(), run));
  }
}

TEST_CASE("recent steps go through a checkpoint and report the same") {
  RecentSteps recent;
  recent.add_norm(1);
  recent.add(4, sites_with(1));
  recent.add(5, sites_with(10));
  RecentSteps resumed;
  resumed.from_numbers(recent.to_numbers(), 2);
  CHECK(resumed.to_numbers() == recent.to_numbers());
  const FirstNonfinite first{.step = 6, .layer = 4 - 1, .site = "logits", .param = "", .in_gradient = false};
  const std::string report = divergence_report(first, sites_with(30), resumed);
  CHECK(report == divergence_report(first, sites_with(30), recent));
  CHECK(report ==
        "step 6: the logits became non-finite; activations had grown 30 times since step 4 (most: the "
        "embedding), gradients had grown 30 times since step 4 (most: the embedding)");
  CHECK_THROWS_AS(resumed.from_numbers(std::vector<double>{1}, 2), Error);
}

TEST_CASE("sites are recorded at the start and after a spike of the gradient") {
  RecentSteps recent;
  for (int step = 0; step < 10; ++step) {
    CHECK(recent.should_record());
    recent.add_norm(1);
  }
  CHECK(!recent.should_record());
  recent.add_norm(2.9);
  CHECK(!recent.should_record());
  recent.add_norm(10);
  CHECK(recent.should_record());
}

TEST_CASE("a model whose weights are not finite draws nothing, and says so") {
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
