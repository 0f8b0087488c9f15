// The kernel of AMX's tiles (kernels/gemm/amx.h) on tiles that the program emulates, so that it is tested on
// every processor with AVX512-BF16.
#pragma once

#include "kernels/gemm/kernel.h"

namespace normscope::testing {

// Null where the compiler builds for another processor than x86-64.
const GemmKernel<Bf16Pair>* emulated_amx();

// The first thing since the last call that a processor would have refused, or that a test forbids: a wrong
// configuration of the tiles, a tile used without one, shapes that do not fit a product, an access outside
// the memory of limit_tiles_to(). Empty: none, and each thread has released its tiles.
const char* fault_of_tiles();

struct MemoryRange {
  const void *begin, *end;
};
// From now on tiles may be loaded from and stored to the current thread's stack and these ranges alone;
// without ranges, anywhere.
void limit_tiles_to(const MemoryRange* ranges, Index count);

}  // namespace normscope::testing
