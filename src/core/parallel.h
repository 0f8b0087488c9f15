// The one way this program uses threads: a loop over blocks of fixed size.
//
// Block boundaries depend on the amount of work alone, never on the number of threads, and a block is
// computed by one thread. A kernel that writes disjoint outputs a block, or keeps one partial sum a block and
// adds them in order, therefore gives the same bits at any thread count.
//
// The threads are the program's own and not OpenMP's. An OpenMP loop ends when every thread has come to its
// end, also one that had nothing left to do and that the scheduler, beside other busy programs, has not run
// yet. Here the calling thread takes all blocks that nobody has taken, and waits for blocks under way alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <type_traits>

#include "core/types.h"

namespace normscope {

// Threads that parallel loops use, 0: usable_cores(), which is the default. May change between loops. Where
// the system gives no more threads the count becomes what it gave.
void set_thread_count(int threads);
int thread_count();

// Whether the caller is inside a parallel loop; loops in there run in the calling thread alone.
bool in_parallel_loop();

inline Index block_count(Index items, Index block) { return (items + block - 1) / block; }

// Blocks handed out to threads: first the thread's own share of neighbouring blocks, then what is left of the
// others'. So from one loop to the next a thread finds in its cache the rows that it computed (4 % of a step
// with two threads), and a slow core is helped out.
class BlockShares {
 public:
  BlockShares(Index blocks, int threads) : count_(std::min(threads, most)) {
    for (int i = 0; i < count_; ++i) {
      shares_[i].next = blocks * i / count_;
      shares_[i].end = blocks * (i + 1) / count_;
    }
  }

  // Calls run(block) for blocks that nobody has taken yet, until there are none.
  template <class Run>
  void each(int thread, Run&& run) {
    for (int i = 0; i < count_; ++i) {
      Share& share = shares_[(thread + i) % count_];
      for (Index b; (b = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;) run(b);
    }
  }

 private:
  static constexpr int most = 64;
  struct alignas(64) Share {  // a cache line each
    std::atomic<Index> next;
    Index end;
  };
  Share shares_[most];
  int count_;
};

// Calls run(context, thread) as thread 0 here and as threads 1, 2 ... in those of `threads` that are awake in
// time, at most once in each. Returns when all calls have; the first exception that left one is thrown here.
void run_in_threads(int threads, void (*run)(void* context, int thread), void* context);

// Calls body(i, mine) for each i of [0, items), each call by one thread; `mine` is what that thread got from
// prepare(), which it calls before its first item.
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

// Calls body(i) for each i of [0, items), each call by one thread.
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
