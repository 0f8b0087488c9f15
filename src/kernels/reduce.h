// A sum over blocks of fixed size: one partial result a block, combined in the order of the blocks, so that
// it does not depend on the number of threads.
#pragma once

#include "core/parallel.h"
#include "kernels/elementwise.h"

namespace normscope {

constexpr Index elements_per_block = 16384;

// measure(begin, count) gives a block's Partial; combine(partial) takes them one after another.
template <class Partial, class Measure, class Combine>
void reduce_blocks(Index n, Measure measure, Combine combine) {
  constexpr Index blocks_at_once = 1024;  // partial results live on the stack
  Partial partial[blocks_at_once];
  for (Index first = 0; first < n; first += blocks_at_once * elements_per_block) {
    const Index count = std::min(n - first, blocks_at_once * elements_per_block);
    parallel_blocks(count, elements_per_block, [&](Index begin, Index end) {
      partial[begin / elements_per_block] = measure(first + begin, end - begin);
    });
    for (Index b = 0; b < block_count(count, elements_per_block); ++b) combine(partial[b]);
  }
}

template <class Measure>
Moments sum_of_moments(Index n, Measure measure) {
  Moments total;
  reduce_blocks<Moments>(n, measure, [&](const Moments& part) { total.merge(part); });
  return total;
}

}  // namespace normscope
