// A sum over blocks of fixed size: one partial sum a block, added in the order of the blocks, so that it does
// not depend on the number of threads.
#pragma once

#include "core/parallel.h"

namespace normscope {

constexpr Index elements_per_block = 16384;

// The sum of what measure(begin, count) returns for each block.
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
