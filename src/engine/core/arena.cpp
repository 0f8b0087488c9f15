#include "core/arena.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/error.h"

namespace normscope {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t round_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) std::free(chunk.begin);
}

void Arena::add_chunk(std::size_t bytes) {
  const std::size_t size = round_up(bytes, huge_page);
  void* memory = std::aligned_alloc(huge_page, size);
  require(memory != nullptr, "memory", "could not allocate ", size >> 20, " MiB for a training step; ",
          "use a smaller batch_size, context or model");
  madvise(memory, size, MADV_HUGEPAGE);  // fewer page faults; only a hint, so errors do not matter
  chunks_.push_back({static_cast<std::byte*>(memory), size});
}

void* Arena::take_bytes(std::size_t bytes) {
  bytes = round_up(std::max<std::size_t>(bytes, 1), cache_line);
  while (current_ < chunks_.size() && used_ + bytes > chunks_[current_].size) {
    ++current_;
    used_ = 0;
  }
  if (current_ == chunks_.size()) add_chunk(std::max(bytes, total_ / 2));
  void* memory = chunks_[current_].begin + used_;
  used_ += bytes;
  total_ += bytes;
  peak_ = std::max(peak_, total_);
  return memory;
}

}  // namespace normscope
