// Scratch memory of a thread, kept between calls, so that the steady state allocates nothing.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>

#include "core/types.h"

namespace normscope {

// `count` uninitialised numbers of the calling thread, aligned to a cache line, valid until its next call
// with the same Tag. Uses with overlapping lifetimes need different Tags.
template <class Real, class Tag>
Real* thread_scratch(Index count) {
  struct Free {
    void operator()(Real* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<Real, Free> memory;
  thread_local Index capacity = 0;
  if (count > capacity) {
    const Index padded = (count + 1023) / 1024 * 1024;
    memory.reset();
    memory.reset(static_cast<Real*>(std::aligned_alloc(64, static_cast<std::size_t>(padded) * sizeof(Real))));
    capacity = memory != nullptr ? padded : 0;
    if (memory == nullptr) throw std::bad_alloc();
  }
  return memory.get();
}

// The stride of rows of `numbers`: an odd number of cache lines, so that rows start in different cache sets.
template <class Real>
Index scratch_stride(Index numbers) {
  constexpr Index line = 64 / static_cast<Index>(sizeof(Real));
  return ((numbers + line - 1) / line | 1) * line;
}

}  // namespace normscope
