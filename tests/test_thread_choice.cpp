// The choice of threads by trial, on made-up machines.
#include <doctest/doctest.h>

#include <functional>
#include <map>

#include "helpers.h"
#include "train/thread_choice.h"

namespace normscope {
namespace {
using namespace testing;

using Seconds = std::function<double(Index step, int threads)>;

// The steps that each count of threads gets in a run, and how often another was chosen.
struct Outcome {
  std::map<int, Index> steps;
  int chosen = 0, changes = 0;
};

Outcome outcome_of(int first, int most, Index steps, const Seconds& seconds) {
  const ThreadCount count(first);
  Outcome outcome;
  {
    ThreadChoice choice(most);
    for (Index step = 1; step <= steps; ++step) {
      const int threads = thread_count();
      ++outcome.steps[threads];
      const int before = choice.chosen();
      const bool is_another = choice.choose(seconds(step, threads));
      CHECK(is_another == (choice.chosen() != before));
      outcome.changes += is_another;
    }
    outcome.chosen = choice.chosen();
  }
  CHECK(thread_count() == outcome.chosen);
  return outcome;
}

TEST_CASE("thread choice: the fastest count is found from any other, and trials are few") {
  for (const int best : {1, 2, 3, 4, 6, 8}) {
    const auto seconds = [&](Index, int threads) { return 1 + std::abs(std::log2(1.0 * threads / best)); };
    for (const int first : {1, 2, 8}) {
      CAPTURE(best);
      CAPTURE(first);
      const Outcome outcome = outcome_of(first, 8, 1000, seconds);
      CHECK(seconds(0, outcome.chosen) <= seconds(0, best == 3 ? 4 : best == 6 ? 8 : best) + 1e-9);
      CHECK(outcome.steps.at(outcome.chosen) > 900);
      CHECK(outcome.changes <= 3);
    }
  }
}

TEST_CASE("thread choice: an idle machine loses little, and noise changes nothing") {
  const RandomStream noise(1, "noise");
  const auto seconds = [&](Index step, int threads) {
    return (threads == 2 ? 1 : 1.9) * (1 + 0.1 * noise.uniform(static_cast<std::uint64_t>(step)));
  };
  const Outcome outcome = outcome_of(2, 2, 2000, seconds);
  CHECK(outcome.chosen == 2);
  CHECK(outcome.changes == 0);
  CHECK(outcome.steps.at(1) <= 8);
}

TEST_CASE("thread choice: steps that vary by half seldom change what is as fast") {
  const RandomStream noise(2, "noise");
  const auto seconds = [&](Index step, int) {
    return 1 + 0.5 * noise.uniform(static_cast<std::uint64_t>(step));
  };
  const Outcome outcome = outcome_of(1, 2, 10000, seconds);
  CHECK(outcome.changes <= 5);
  CHECK(std::min(outcome.steps.at(1), outcome.steps.at(2)) >= 40);  // trials there were
}

TEST_CASE("thread choice: another load on the machine is noticed within tens of steps") {
  const auto seconds = [](Index step, int threads) {
    const bool is_busy = step > 500 && step <= 1000;
    return threads == 1 ? (is_busy ? 1.2 : 1.0) : (is_busy ? 2.0 : 0.55);
  };
  CHECK(outcome_of(2, 2, 500, seconds).chosen == 2);
  CHECK(outcome_of(2, 2, 560, seconds).chosen == 1);
  const Outcome both = outcome_of(2, 2, 2000, seconds);
  CHECK(both.chosen == 2);
  CHECK(both.changes == 2);
}

TEST_CASE("thread choice: a fixed count stays, and so does the only one") {
  const auto slower = [](Index, int threads) { return 1.0 * threads; };
  CHECK(outcome_of(4, 0, 1000, slower).steps == std::map<int, Index>{{4, 1000}});
  CHECK(outcome_of(1, 1, 1000, slower).steps == std::map<int, Index>{{1, 1000}});
}

}  // namespace
}  // namespace normscope
