// The one way this program uses threads: a loop over blocks of fixed size.
//
// Block boundaries depend on the amount of work alone, never on the number of threads, and a block is
// computed by one thread. A kernel that writes disjoint outputs a block, or keeps one partial sum a block and
// adds them in order, therefore gives the same bits at any thread count.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "core/types.h"

namespace normscope {

// Threads that parallel loops use. Set once by the program; the default is the cores in the affinity mask.
void set_thread_count(int threads);
int thread_count();

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

// Calls body(thread) once in each thread. OpenMP ends the program where an exception leaves a region, so the
// first one is carried out of it.
template <class Body>
void parallel_region(Body&& body) {
  std::exception_ptr failure;
#pragma omp parallel num_threads(thread_count())
  try {
    body(omp_get_thread_num());
  } catch (...) {
#pragma omp critical(normscope_parallel_failure)
    if (!failure) failure = std::current_exception();
  }
  if (failure) std::rethrow_exception(failure);
}

// Calls body(i, mine) for each i of [0, items), each call by one thread; `mine` is what that thread got from
// prepare(), which it calls first.
template <class Prepare, class Body>
void parallel_each(Index items, Prepare&& prepare, Body&& body) {
  if (items <= 1 || thread_count() == 1 || omp_in_parallel()) {
    const auto mine = prepare();
    for (Index i = 0; i < items; ++i) body(i, mine);
    return;
  }
  BlockShares shares(items, thread_count());
  parallel_region([&](int thread) {
    const auto mine = prepare();
    shares.each(thread, [&](Index i) { body(i, mine); });
  });
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

// Calls body() once, inside a parallel region: a library that threads outside of regions stays in one thread.
template <class Body>
void in_parallel_region(Body&& body) {
  if (thread_count() == 1 || omp_in_parallel()) return body();
  parallel_region([&](int thread) {
    if (thread == 0) body();
  });
}

}  // namespace normscope
