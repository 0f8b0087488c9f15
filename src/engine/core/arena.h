// Memory of one training step: values, gradients, closures. Allocated in order, freed all at once.
#pragma once

#include <cstdlib>
#include <map>
#include <vector>

#include "core/types.h"

namespace normscope {

// A bump allocator. The first step may allocate several chunks; every later step of the same shape fills the
// same memory in the same order, and makes no system call.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Uninitialised memory for `count` objects, aligned to a cache line. Valid until reset().
  template <class T>
  T* take(Index count) {
    return static_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

  // Make all memory available again.
  void reset() { current_ = used_ = total_ = 0; }

  std::size_t peak_bytes() const { return peak_; }  // the maximum in use between two resets
  int chunks_allocated() const { return static_cast<int>(chunks_.size()); }

 private:
  struct Chunk {
    std::byte* begin;
    std::size_t size;
  };
  void* take_bytes(std::size_t bytes);
  void add_chunk(std::size_t bytes);

  std::vector<Chunk> chunks_;
  std::size_t current_ = 0;  // the chunk that is being filled
  std::size_t used_ = 0;     // bytes of it
  std::size_t total_ = 0;    // bytes since the last reset
  std::size_t peak_ = 0;
};

// Buffers with a lifetime within a step, such as gradients: a released buffer is used for the next request of
// the same size. Every step requests the same sizes in the same order, so it uses the same memory.
template <class Real>
class BufferPool {
 public:
  explicit BufferPool(Arena& arena) : arena_(&arena) {}

  Real* acquire(Index count) {
    std::vector<Real*>& free = free_[count];
    if (free.empty()) return arena_->take<Real>(count);
    Real* buffer = free.back();
    free.pop_back();
    return buffer;
  }

  void release(Real* buffer, Index count) { free_[count].push_back(buffer); }

  // Drop every buffer; call it with the arena's reset().
  void reset() {
    for (auto& [count, free] : free_) free.clear();
  }

 private:
  Arena* arena_;
  std::map<Index, std::vector<Real*>> free_;  // by size
};

}  // namespace normscope
