// The one way this program uses threads: a loop over blocks of fixed size.
//
// Block boundaries depend on the amount of work alone, never on the number of threads, and a block is
// computed by one thread. A kernel that writes disjoint outputs a block, or keeps one partial sum a block and
// adds them in order, therefore gives the same bits at any thread count.
#pragma once

#include <omp.h>

#include <algorithm>

#include "core/types.h"

namespace normscope {

// Threads that parallel loops use. Set once by the program; the default is the cores in the affinity mask.
void set_thread_count(int threads);
int thread_count();

inline Index block_count(Index items, Index block) { return (items + block - 1) / block; }

// Calls body(begin, end) for each block of `block` items of [0, items).
template <class Body>
void parallel_blocks(Index items, Index block, Body&& body) {
  const Index blocks = block_count(items, block);
  const auto run = [&](Index b) { body(b * block, std::min(items, (b + 1) * block)); };
  if (blocks <= 1 || thread_count() == 1 || omp_in_parallel()) {
    for (Index b = 0; b < blocks; ++b) run(b);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(thread_count())
  for (Index b = 0; b < blocks; ++b) run(b);
}

// Calls body(i) for each i of [0, items), each call by one thread.
template <class Body>
void parallel_each(Index items, Body&& body) {
  parallel_blocks(items, 1, [&](Index begin, Index) { body(begin); });
}

// Calls body() once, inside a parallel region: a library that threads outside of regions stays in one thread.
template <class Body>
void in_parallel_region(Body&& body) {
  if (thread_count() == 1 || omp_in_parallel()) return body();
#pragma omp parallel num_threads(thread_count())
  if (omp_get_thread_num() == 0) body();
}

}  // namespace normscope
