// The one parallel loop: every item once, loops in loops, exceptions, thread counts that change.
#include <doctest/doctest.h>

#include <atomic>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"

namespace normscope {
namespace {

TEST_CASE("parallel: each item once, at any thread count") {
  for (const int threads : {1, 2, 3, 8}) {
    const ThreadCount count(threads);
    CHECK(thread_count() == threads);
    for (Index items = 0; items < 40; ++items) {
      std::vector<std::atomic<int>> taken(static_cast<std::size_t>(items));
      parallel_for(items, [&](Index i) { ++taken[static_cast<std::size_t>(i)]; });
      for (const std::atomic<int>& times : taken) REQUIRE(times == 1);
    }
  }
}

TEST_CASE("parallel: blocks cover the range whatever the thread count") {
  for (const int threads : {1, 3}) {
    const ThreadCount count(threads);
    std::atomic<Index> sum = 0, blocks = 0;
    parallel_blocks(1000, 64, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) sum += i;
      ++blocks;
    });
    CHECK(sum == 999 * 1000 / 2);
    CHECK(blocks == 16);
  }
}

TEST_CASE("parallel: a loop inside a loop runs in its own thread") {
  const ThreadCount count(3);
  std::atomic<int> elsewhere = 0, items = 0;
  CHECK(!in_parallel_loop());
  parallel_for(6, [&](Index) {
    const int outer = omp_get_thread_num();
    parallel_for(5,
                 [&](Index) { ++items, elsewhere += !in_parallel_loop() || omp_get_thread_num() != outer; });
  });
  CHECK(!in_parallel_loop());
  CHECK(items == 30);
  CHECK(elsewhere == 0);
}

TEST_CASE("parallel: an exception in a thread leaves the loop as an exception") {
  for (const int threads : {1, 2, 4}) {
    const ThreadCount count(threads);
    for (const Index bad : {Index{0}, Index{99}}) {
      const auto loop = [&] { parallel_for(100, [&](Index i) { require(i != bad, "loop", "item ", i); }); };
      CHECK_THROWS_WITH_AS(loop(), text("[loop] item ", bad).c_str(), Error);
    }
    CHECK_THROWS_AS(parallel_for(100, [](Index) { throw std::bad_alloc(); }), std::bad_alloc);
    std::atomic<Index> sum = 0;
    parallel_for(100, [&](Index i) { sum += i; });
    CHECK(sum == 4950);
  }
}

}  // namespace
}  // namespace normscope
