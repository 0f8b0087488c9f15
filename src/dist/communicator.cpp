#include "dist/communicator.h"

#include <algorithm>

namespace normscope {

std::string Communicator::said_here() const {
  return is_first() ? "" : text("[mpi] rank ", rank_, " on ", machine(), ": ");
}

void Communicator::broadcast(void* items, Index bytes_per_item, Index count, int from) {
  std::vector<Index> cut(size_ + 1, 0);
  std::fill(cut.begin() + from + 1, cut.end(), count);
  complete(items, bytes_per_item, cut);
}

std::vector<std::uint64_t> Communicator::gather(std::uint64_t mine) {
  std::vector<std::uint64_t> all(size_);
  all[rank_] = mine;
  complete(all, even_cut(size_, size_));
  return all;
}

bool Communicator::any(bool mine) {
  return std::ranges::any_of(gather(mine), [](std::uint64_t of_rank) { return of_rank != 0; });
}

void Communicator::throw_if_any(const std::optional<Error>& mine) {
  const std::vector<std::uint64_t> codes = gather(mine ? static_cast<std::uint64_t>(mine->exit) : 0);
  const auto failed = std::ranges::find_if(codes, [](std::uint64_t code) { return code != 0; });
  if (failed == codes.end()) return;
  std::string message = mine ? said_here() + mine->what() : "";
  broadcast(message, static_cast<int>(failed - codes.begin()));
  leave();
  throw Error(static_cast<Exit>(*failed), message);
}

std::vector<Index> even_cut(Index items, int ranks) {
  std::vector<Index> cut;
  for (int r = 0; r <= ranks; ++r) cut.push_back(items * r / ranks);
  return cut;
}

}  // namespace normscope
