#include "core/parallel.h"

#include <chrono>

namespace normscope {
namespace {

int threads = 0;  // 0: not set yet

}  // namespace

void set_thread_count(int count) {
  // The processors that OpenMP may use: those of the affinity mask, also where it has bound this thread to
  // one.
  threads = count > 0 ? count : omp_get_num_procs();
  omp_set_dynamic(0);
  omp_set_num_threads(
      threads);  // an OpenMP build of OpenBLAS reads this: 1 thread must mean 1 thread there too
}

int thread_count() {
  if (threads == 0) set_thread_count(0);
  return threads;
}

double measure_handover_ns() {
  if (thread_count() == 1) return 0;
  using Clock = std::chrono::steady_clock;
  constexpr int turns_a_round = 20, over = -1;
  alignas(128) std::atomic<int> turn{0};
  // False when there will be no such turn.
  const auto wait_for = [&](int wanted) {
    int seen;
    while ((seen = turn.load(std::memory_order_acquire)) != wanted && seen != over) {
    }
    return seen != over;
  };
  double ns = 0;
  Index turns = 0;
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num() == 1) {
    while (wait_for(1)) turn.store(0, std::memory_order_release);
  } else {
    const auto start = Clock::now();
    for (; ns < 1e6 && omp_get_num_threads() == 2; turns += turns_a_round) {
      for (int i = 0; i < turns_a_round; i += 2) {
        turn.store(1, std::memory_order_release);
        wait_for(0);
      }
      ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    }
    turn.store(over, std::memory_order_release);
  }
  return turns == 0 ? 0 : ns / static_cast<double>(turns);
}

}  // namespace normscope
