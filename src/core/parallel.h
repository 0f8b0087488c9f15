// Parallel loops over blocks of fixed size, the only use of threads in this program.
//
// Block boundaries depend only on the amount of work, not on the number of threads, and one thread computes a
// block. So a kernel with disjoint outputs per block, or with one partial sum per block that are added in
// order, gives the same bits at any thread count.
//
// The threads are not OpenMP's. An OpenMP loop ends when every thread has reached its end, even a thread
// without work that the scheduler, beside other busy programs, has not run yet. Here the calling thread takes
// all remaining blocks, and waits only for blocks in progress.
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <type_traits>

#include "core/types.h"

namespace normscope {

// The number of threads of parallel loops; 0, the default: usable_cores(). May change between loops. If the
// system cannot start more threads, the count becomes the number of those that run.
void set_thread_count(int threads);
int thread_count();

// Whether the caller is inside a parallel loop; inner loops run in the calling thread only.
bool in_parallel_loop();

inline Index block_count(Index items, Index block) { return (items + block - 1) / block; }

// Distributes blocks to threads: first the thread's own share of neighbouring blocks, then the rest of the
// other shares. So a thread finds the rows that it computed in the last loop in its cache (4 % of a step with
// two threads), and other threads take over work from a slow core.
class BlockShares {
 public:
  BlockShares(Index blocks, int threads) : count_(std::min(threads, most)) {
    for (int i = 0; i < count_; ++i) {
      shares_[i].next = blocks * i / count_;
      shares_[i].end = blocks * (i + 1) / count_;
    }
  }

  // Calls run(block) for the blocks not taken yet, until there are none.
  template <class Run>
  void each(int thread, Run&& run) {
    for (int i = 0; i < count_; ++i) {
      Share& share = shares_[(thread + i) % count_];
      std::atomic_ref next(share.next);
      for (Index b; (b = next.fetch_add(1, std::memory_order_relaxed)) < share.end;) run(b);
    }
  }

 private:
  static constexpr int most = 64;
  struct alignas(64) Share {  // a cache line each; std::atomic would write all of them for every loop
    Index next, end;
  };
  Share shares_[most];
  int count_;
};

// Calls run(context, thread) once in the calling thread, as thread 0, and at most once in each of the threads
// 1, 2 ... `threads`-1 that wake up in time. Returns when all calls have returned, and rethrows the first
// exception of any.
void run_in_threads(int threads, void (*run)(void* context, int thread), void* context);

// Calls body(i, mine) for each i of [0, items), each in one thread; `mine` is the result of prepare(), which
// every thread calls before its first item.
template <class Prepare, class Body>
void parallel_each(Index items, Prepare&& prepare, Body&& body) {
  const int threads = static_cast<int>(std::min<Index>(items, thread_count()));
  if (threads <= 1 || in_parallel_loop()) {
    const auto mine = prepare();
    for (Index i = 0; i < items; ++i) body(i, mine);
    return;
  }
  BlockShares shares(items, threads);
  auto share = [&](int thread) {
    std::optional<std::decay_t<decltype(prepare())>> mine;
    shares.each(thread, [&](Index i) {
      if (!mine) mine.emplace(prepare());
      body(i, *mine);
    });
  };
  using Share = decltype(share);
  run_in_threads(
      threads, [](void* it, int thread) { (*static_cast<Share*>(it))(thread); }, &share);
}

// Calls body(i) for each i of [0, items), each in one thread.
template <class Body>
void parallel_each(Index items, Body&& body) {
  struct Nothing {};
  parallel_each(
      items, [] { return Nothing{}; }, [&](Index i, Nothing) { body(i); });
}

// Calls body(begin, end) for each block of `block` items of [0, items).
template <class Body>
void parallel_blocks(Index items, Index block, Body&& body) {
  parallel_each(block_count(items, block),
                [&](Index b) { body(b * block, std::min(items, (b + 1) * block)); });
}

}  // namespace normscope
