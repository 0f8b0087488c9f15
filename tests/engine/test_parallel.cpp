// The one parallel loop, and the choice of its thread count by trial.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"
#include "train/thread_choice.h"

using namespace normscope;

TEST_CASE("parallel: each item once at any thread count, an inner loop in its own thread") {
  for (const int threads : {1, 3, 8}) {
    const ThreadCount count(threads);
    for (const Index items : {0, 2, 39}) {
      std::vector<std::atomic<int>> taken(static_cast<std::size_t>(items));
      std::atomic<int> elsewhere = 0;
      parallel_for(items, [&](Index i) {
        const int outer = omp_get_thread_num();
        parallel_for(1, [&](Index) { taken[i] += 1, elsewhere += omp_get_thread_num() != outer; });
        parallel_for(5, [&](Index) { elsewhere += omp_get_thread_num() != outer; });
      });
      for (const std::atomic<int>& times : taken) REQUIRE(times == 1);
      CHECK(elsewhere == 0);
    }
  }
}

TEST_CASE("parallel: a thread whose share is done helps with the others") {
  const ThreadCount count(2);
  std::atomic<int> done = 0;
  int done_before_first = 0;
  const auto start = std::chrono::steady_clock::now();
  parallel_for(8, [&](Index i) {
    if (i == 0) {  // as on a slow core: the rest of its share is the other thread's, or the time runs out
      while (done < 7 && std::chrono::steady_clock::now() - start < std::chrono::minutes(5))
        std::this_thread::yield();
      done_before_first = done;
    }
    ++done;
  });
  CHECK(done_before_first == 7);
}

TEST_CASE("parallel: an exception in a thread leaves the loop as an exception") {
  const ThreadCount count(4);
  for (const Index bad : {0, 99}) {
    const auto loop = [&] { parallel_for(100, [&](Index i) { require(i != bad, "loop", "item ", i); }); };
    CHECK_THROWS_WITH_AS(loop(), text("[loop] item ", bad).c_str(), Error);
  }
}

// The thread count with which a run on a made-up machine ends.
static int chosen(int most, Index steps, const std::function<double(Index step, int threads)>& seconds) {
  const ThreadCount before(most);
  {
    ThreadChoice choice(most);
    for (Index step = 1; step <= steps; ++step) choice.after_step(seconds(step, thread_count()));
  }
  return thread_count();
}

TEST_CASE("thread choice: the fastest count is chosen, and chosen anew after the load has changed") {
  for (const int best : {1, 2, 4, 8})
    CHECK(chosen(8, 1000, [&](Index, int n) { return 1 + std::abs(std::log2(1.0 * n / best)); }) == best);
  const auto busy_from_500_to_1000 = [](Index step, int n) {
    const bool is_busy = step > 500 && step <= 1000;
    const double alone = is_busy ? 1.2 : 1.0, together = is_busy ? 2.0 : 0.55;
    return n == 1 ? alone : together;
  };
  CHECK(chosen(2, 540, busy_from_500_to_1000) == 1);
  CHECK(chosen(2, 1300, busy_from_500_to_1000) == 2);
}
