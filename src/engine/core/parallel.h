// Parallel loops, all of them OpenMP's.
//
// One thread computes an item. A caller that writes a disjoint part of its output for each item gives the
// same bits at any number of threads. A caller that sums over items has one partial sum for each of them,
// adds these in order afterwards, and cuts its items at boundaries that do not depend on the number of
// threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "core/scratch.h"
#include "core/types.h"

namespace normscope {

// The number of threads of the parallel loops that the calling thread starts.
inline void set_thread_count(int threads) { omp_set_num_threads(threads); }
inline int thread_count() { return omp_get_max_threads(); }

// The thread count for the lifetime of the object.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(thread_count()) { set_thread_count(threads); }
  ~ThreadCount() { set_thread_count(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

// The calling thread's number in the innermost parallel loop.
inline int thread_index() { return omp_get_thread_num(); }

// True inside a parallel loop, whose inner loops run in the calling thread alone.
inline bool in_parallel_loop() { return omp_in_parallel() != 0; }

inline Index block_count(Index items, Index block) { return (items + block - 1) / block; }

// The items of a parallel loop that a thread starts with. Padded to a cache line against false sharing.
struct alignas(64) LoopRange {
  std::atomic<Index> next;  // the next item to take
  Index end;
};

// Call body(i) for each i of [0, items), exactly once, by some thread, and rethrow the first exception. Each
// thread starts with a range of neighbouring items, the same one in every loop of as many items, so that
// their rows are still in its cache; then it takes items of the other ranges, since cores differ in speed.
template <class Body>
void parallel_for(Index items, Body&& body) {
  const Index threads = thread_count();
  if (items <= 1 || threads == 1 || in_parallel_loop()) {
    for (Index i = 0; i < items; ++i) body(i);
    return;
  }
  LoopRange* ranges = thread_scratch<LoopRange, LoopRange>(threads);
  for (Index t = 0; t < threads; ++t) {
    ranges[t].next.store(items * t / threads, std::memory_order_relaxed);
    ranges[t].end = items * (t + 1) / threads;
  }
  std::exception_ptr failure;
#pragma omp parallel
  for (Index t = 0; t < threads; ++t) {
    LoopRange& range = ranges[(thread_index() + t) % threads];
    for (Index i; (i = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;) {
      try {
        body(i);
      } catch (...) {
#pragma omp critical(parallel_for_failure)
        if (!failure) failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// Call body(begin, end) for each block of `block` items of [0, items).
template <class Body>
void parallel_blocks(Index items, Index block, Body&& body) {
  parallel_for(block_count(items, block),
               [&](Index b) { body(b * block, std::min(items, (b + 1) * block)); });
}

constexpr Index elements_per_block = 16384;

// The sum of what measure(begin, count) returns for each block of [0, n): one partial sum per block, added in
// the order of the blocks, so that the sum does not depend on the number of threads.
template <class Sum, class Measure>
Sum sum_over_blocks(Index n, Measure measure) {
  constexpr Index blocks_at_once = 64;  // partial sums live on the stack
  Sum partial[blocks_at_once], total = {};
  for (Index first = 0; first < n; first += blocks_at_once * elements_per_block) {
    const Index count = std::min(n - first, blocks_at_once * elements_per_block);
    parallel_blocks(count, elements_per_block, [&](Index begin, Index end) {
      partial[begin / elements_per_block] = measure(first + begin, end - begin);
    });
    for (Index b = 0; b < block_count(count, elements_per_block); ++b) total += partial[b];
  }
  return total;
}

}  // namespace normscope
