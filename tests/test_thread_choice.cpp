// The choice of threads by trial, on made-up machines.
#include <doctest/doctest.h>

#include <functional>

#include "train/thread_choice.h"

namespace normscope {
namespace {

// The seconds of a run of `steps` steps that starts with `threads` threads; sets the count that it ends with.
double run(int threads, Index steps, const std::function<double(Index step, int threads)>& seconds,
           int& chosen) {
  const ThreadCount before(threads);
  double sum = 0;
  {
    ThreadChoice choice(threads);
    for (Index step = 1; step <= steps; ++step) {
      const double now = seconds(step, thread_count());
      sum += now;
      choice.after_step(now);
    }
  }
  chosen = thread_count();
  return sum;
}

TEST_CASE("thread choice: an idle machine keeps all threads and loses little") {
  int chosen = 0;
  const auto seconds = [](Index step, int threads) {
    return (threads == 2 ? 1.0 : 1.9) * (step % 3 == 0 ? 1.1 : 1);
  };
  CHECK(run(2, 1000, seconds, chosen) <
        1.02 * run(
                   2, 1000, [&](Index step, int) { return seconds(step, 2); }, chosen));
  CHECK(chosen == 2);
}

TEST_CASE("thread choice: the fastest count is found, whatever it is") {
  for (const int best : {1, 2, 4, 8}) {
    int chosen = 0;
    run(
        8, 1000, [&](Index, int threads) { return 1 + std::abs(std::log2(1.0 * threads / best)); }, chosen);
    CHECK(chosen == best);
  }
}

TEST_CASE("thread choice: another load is noticed, and its end") {
  int chosen = 0;
  const auto seconds = [](Index step, int threads) {
    const bool is_busy = step > 500 && step <= 1000;
    return threads == 1 ? (is_busy ? 1.2 : 1.0) : (is_busy ? 2.0 : 0.55);
  };
  run(2, 540, seconds, chosen);
  CHECK(chosen == 1);
  run(2, 1300, seconds, chosen);
  CHECK(chosen == 2);
}

}  // namespace
}  // namespace normscope
