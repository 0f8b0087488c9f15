// Scratch memory of a thread, kept between calls, so that the steady state allocates nothing.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "core/types.h"

namespace normscope {

// `count` uninitialised elements, aligned to a cache line. The calling thread owns them until it ends; other
// threads may use them too. They are valid until the owner's next call with the same types, and the owner of a
// parallel loop computes blocks of it. Uses with overlapping lifetimes need different Tags. Element: a number, or another
// type that needs no destructor. Throws std::bad_alloc.
template <class Element, class Tag>
Element* thread_scratch(Index count) {
  static_assert(std::is_trivially_destructible_v<Element>);
  struct Free {
    void operator()(Element* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<Element, Free> memory;
  thread_local Index capacity = 0;
  if (count > capacity) {
    const Index padded = (count + 63) / 64 * 64;  // whole cache lines
    memory.reset();
    memory.reset(
        static_cast<Element*>(std::aligned_alloc(64, static_cast<std::size_t>(padded) * sizeof(Element))));
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
