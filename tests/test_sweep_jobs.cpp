// The time that a sweep says is left, and how far it says that runs are.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "cli/sweep_jobs.h"

using namespace normscope;

namespace {

double seconds_left(const std::vector<RunTime>& times, double elapsed, Index at_once) {
  std::vector<Job> jobs;
  for (const RunTime& time : times) jobs.push_back({nullptr, "", time, ""});
  return normscope::seconds_left(jobs, elapsed, at_once);
}

}  // namespace

TEST_CASE("sweep time: before anything is done, what was expected") {
  CHECK(seconds_left({{10, 0, 0}, {30, 0, 0}}, 0, 1) == doctest::Approx(40));
  CHECK(seconds_left({{10, 0, 0}, {30, 0, 0}, {40, 0, 0}}, 0, 2) == doctest::Approx(40));
  CHECK(seconds_left(std::vector<RunTime>{}, 0, 2) == 0);
}

TEST_CASE("sweep time: a run weighs what it is expected to cost, at the pace of what was done") {
  // Half of the work in 20 seconds; by count it would be a third.
  CHECK(seconds_left({{30, 0, 1}, {15, 0, 0}, {15, 0, 0}}, 20, 1) == doctest::Approx(20));
}

TEST_CASE("sweep time: what running runs have done counts, what an earlier sweep did does not") {
  CHECK(seconds_left({{10, 0, 0.5}, {10, 0, 0.5}, {20, 0, 0}}, 5, 2) == doctest::Approx(20));
  CHECK(seconds_left({{10, 1, 1}, {10, 0.5, 0.75}}, 5, 1) == doctest::Approx(5));
}

TEST_CASE("sweep time: the last run has no other beside it") {
  // Two at a time did 20 expected seconds in 10, so one does them in 20.
  CHECK(seconds_left({{10, 0, 1}, {10, 0, 1}, {20, 0, 0}}, 10, 2) == doctest::Approx(20));
  CHECK(seconds_left({{10, 0, 1}, {10, 0, 1}}, 10, 2) == 0);
}

TEST_CASE("sweep time: a run is as far as the last whole row of its log") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "normscope-test-progress";
  std::filesystem::create_directories(folder);
  SweepRun run{};
  run.config.train.steps = 1000;
  Job job{&run, folder.string(), {}, ""};
  const auto progress = [&](const std::string& log) {
    std::ofstream(folder / "metrics.csv") << log;
    return progress_of(job);
  };
  const std::string header = "step,tokens,train_loss,val_loss\n";
  std::string rows;
  for (int step = 1; step <= 250; ++step) rows += std::to_string(step) + ",64,2.612345,\n";
  CHECK(progress(header) == "starting");
  CHECK(progress(header + rows) == "step 250/1000  loss 2.6123");
  CHECK(job.time.now == doctest::Approx(0.25));
  CHECK(progress(header + rows + "251,64,3.") == "step 250/1000  loss 2.6123");
  CHECK(progress("torn") == "starting");
  std::filesystem::remove_all(folder);
  CHECK(progress_of(job) == "starting");
}
