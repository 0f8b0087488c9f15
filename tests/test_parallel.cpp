// The one parallel loop: every item once, exceptions, loops in loops, thread counts that change; and how many
// processors there are to use.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/processors.h"
#include "helpers.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {
using namespace testing;

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// The threads that took part in a loop whose every item takes a while.
std::set<std::thread::id> threads_of_a_loop() {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel_each(Index{40}, [&](Index) {
    pause();
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  return threads;
}

TEST_CASE("parallel: a thread takes its own share of blocks first, then what is left, each block once") {
  for (const int threads : {1, 2, 3, 64, 100}) {
    for (const Index blocks : {Index{1}, Index{2}, Index{7}, Index{200}}) {
      CAPTURE(threads);
      CAPTURE(blocks);
      BlockShares shares(blocks, threads);
      std::vector<int> taken(static_cast<std::size_t>(blocks));
      const int last = threads - 1;  // alone, it helps all the others out
      std::vector<Index> order;
      shares.each(last, [&](Index b) {
        order.push_back(b);
        ++taken[static_cast<std::size_t>(b)];
      });
      shares.each(0, [&](Index b) { ++taken[static_cast<std::size_t>(b)]; });
      CHECK(taken == std::vector<int>(static_cast<std::size_t>(blocks), 1));
      if (threads <= 3 && blocks >= threads) CHECK(order.front() == blocks * last / threads);
    }
  }
}

TEST_CASE("parallel: each item once, at any thread count, one loop after the other") {
  std::vector<std::atomic<int>> taken(97);
  for (int round = 0; round < 3000; ++round) {
    const ThreadCount count(round % 100 == 99 ? 100 : round % 5 + 1);
    const Index items = 1 + round % 97;
    parallel_each(items, [&](Index i) { ++taken[static_cast<std::size_t>(i)]; });
    const int sum = std::accumulate(taken.begin(), taken.end(), 0);
    REQUIRE(sum == items);
    for (Index i = 0; i < items; ++i) REQUIRE(taken[static_cast<std::size_t>(i)].exchange(0) == 1);
    if (round % 500 == 0) pause();  // helpers fall asleep
  }
}

TEST_CASE("parallel: as many threads as were set, and the calling one is among them") {
  for (const int threads : {1, 3, 2, 4, 1}) {
    const ThreadCount count(threads);
    const std::set<std::thread::id> seen = threads_of_a_loop();
    CHECK(seen.size() == static_cast<std::size_t>(threads));
    CHECK(seen.contains(std::this_thread::get_id()));
  }
}

TEST_CASE("parallel: a thread prepares before its first item, and only if it gets one") {
  const ThreadCount count(4);
  std::atomic<int> prepared = 0, unprepared = 0;
  parallel_each(
      Index{50}, [&] { return ++prepared, std::this_thread::get_id(); },
      [&](Index, std::thread::id mine) { unprepared += mine != std::this_thread::get_id(); });
  CHECK(prepared >= 1);
  CHECK(prepared <= 4);
  CHECK(unprepared == 0);
}

TEST_CASE("parallel: a loop inside a loop runs in the thread that came to it") {
  const ThreadCount count(3);
  std::atomic<int> elsewhere = 0, items = 0;
  CHECK(!in_parallel_loop());
  parallel_each(Index{6}, [&](Index) {
    const std::thread::id outer = std::this_thread::get_id();
    pause();
    parallel_each(Index{5}, [&](Index) {
      ++items;
      elsewhere += !in_parallel_loop() || std::this_thread::get_id() != outer;
    });
  });
  CHECK(!in_parallel_loop());
  CHECK(items == 30);
  CHECK(elsewhere == 0);
}

TEST_CASE("parallel: an exception in a thread leaves the loop as an exception") {
  for (const int threads : {1, 2, 4}) {
    const ThreadCount count(threads);
    for (const Index bad : {Index{0}, Index{99}}) {
      const auto loop = [&] {
        parallel_each(Index{100}, [&](Index i) { require(i != bad, "loop", "item ", i); });
      };
      CHECK_THROWS_WITH_AS(loop(), text("[loop] item ", bad).c_str(), Error);
    }
    const auto unprepared = [] { throw std::bad_alloc(); };
    const auto all_fail = [&] { parallel_each(Index{100}, [&](Index) { pause(), unprepared(); }); };
    CHECK_THROWS_AS(all_fail(), std::bad_alloc);
    std::atomic<int> sum = 0;
    parallel_each(Index{100}, [&](Index i) { sum += static_cast<int>(i); });
    CHECK(sum == 4950);
  }
}

using SystemFiles = std::vector<std::pair<std::string, std::string>>;

// What limit(root) says where /proc and /sys hold these files, and the process is in these control groups.
template <class Limit>
double limit_in(Limit limit, const std::string& groups, SystemFiles files) {
  const fs::path root = fs::temp_directory_path() / text("normscope-groups-", getpid());
  files.push_back({"proc/self/cgroup", groups});
  for (const auto& [name, content] : files) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << content;
  }
  const double found = limit(root.string());
  fs::remove_all(root);
  return found;
}

TEST_CASE("memory: control groups limit it, whose cached files count as free") {
  const auto free = [](SystemFiles files) {
    files.push_back({"proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 4000 kB\n"});
    return limit_in(available_memory_bytes, "0::/job/step\n", std::move(files));
  };
  const std::string job = "sys/fs/cgroup/job/", step = job + "step/";
  CHECK(free({}) == 4000 * 1024);
  CHECK(free({{step + "memory.max", "max\n"}, {step + "memory.current", "5000\n"}}) == 4000 * 1024);
  CHECK(free({{step + "memory.max", "900000\n"}, {step + "memory.current", "500000\n"}}) == 400'000);
  CHECK(free({{step + "memory.max", "900000\n"},
              {step + "memory.current", "500000\n"},
              {step + "memory.stat", "anon 9\nfile 300000\ninactive_file 200000\nactive_file 100000\n"}}) ==
        700'000);
  CHECK(free({{step + "memory.max", "900000\n"},
              {step + "memory.current", "500000\n"},
              {job + "memory.max", "800000\n"},
              {job + "memory.current", "600000\n"}}) == 200'000);
}

TEST_CASE("processors: the CPU quota of control groups, whose versions and levels all count") {
  const auto quota = [](const std::string& groups, SystemFiles files) {
    return limit_in(cpu_quota, groups, std::move(files));
  };
  const std::string two = "0::/job/step\n", one = "5:memory:/m\n4:cpu,cpuacct:/job/step\n1:cpuset:/c\n";
  CHECK(std::isinf(quota("", {})));
  CHECK(std::isinf(quota(two, {{"sys/fs/cgroup/job/step/cpu.max", "max 100000\n"}})));
  CHECK(quota(two, {{"sys/fs/cgroup/job/step/cpu.max", "150000 100000\n"}}) == 1.5);
  CHECK(quota(two, {{"sys/fs/cgroup/job/step/cpu.max", "max 100000\n"},
                    {"sys/fs/cgroup/job/cpu.max", "50000 100000\n"},
                    {"sys/fs/cgroup/cpu.max", "200000 100000\n"}}) == 0.5);
  CHECK(quota(two, {{"sys/fs/cgroup/cpu.max", "200000 100000\n"}}) == 2);
  CHECK(quota("0::/\n", {{"sys/fs/cgroup/cpu.max", "300000 100000\n"}}) == 3);
  CHECK(std::isinf(quota(one, {{"sys/fs/cgroup/cpu/job/step/cpu.cfs_quota_us", "-1\n"},
                               {"sys/fs/cgroup/cpu/job/step/cpu.cfs_period_us", "100000\n"}})));
  CHECK(quota(one, {{"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "250000\n"},
                    {"sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"}}) == 2.5);
  CHECK(std::isinf(quota(one, {{"sys/fs/cgroup/cpuset/c/cpu.max", "100000 100000\n"}})));
}

}  // namespace
}  // namespace normscope
