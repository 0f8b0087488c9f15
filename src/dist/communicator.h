// The processes that share a run: "ranks", as MPI calls them. A run of one process is the case of one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/types.h"

namespace normscope {

constexpr Index floats_per_line = 16;

// A rank's view of all of them. It moves numbers and never adds any: sums whose order depended on the number
// of ranks would have other bits. Every function but those of one line is called by all ranks, in the same
// order. This class itself is the one rank of a run that is not shared.
class Communicator {
 public:
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_first() const { return rank_ == 0; }  // the one that writes files and speaks
  virtual std::string machine() const { return ""; }
  std::string said_here()
      const;  // what begins an error's line: "[mpi] rank 3 on node07: "; empty at the first

  // Rank r has set items [cut[r], cut[r+1]) of an array; now all ranks get all of it. (MPI_Allgatherv)
  virtual void complete(void* /*items*/, Index /*bytes_per_item*/, std::span<const Index> /*cut*/) {}
  template <class Item>
  void complete(std::vector<Item>& items, std::span<const Index> cut) {
    complete(items.data(), sizeof(Item), cut);
  }

  // Rank r gets lines [cut[r], cut[r+1]) of the block of every rank s with place[s] >= 0, and puts them at
  // line place[s] of `parts`. A line is 16 floats. (MPI_Alltoallv)
  virtual void exchange(const float* /*block*/, std::span<const Index> /*cut*/,
                        std::span<const Index> /*place*/, float* /*parts*/) {}

  // From one rank to all: items; a vector or string of any length.
  void broadcast(void* items, Index bytes_per_item, Index count, int from = 0);
  template <class Items>
  void broadcast(Items& items, int from = 0) {
    Index count = std::ssize(items);
    broadcast(&count, sizeof count, 1, from);
    items.resize(static_cast<std::size_t>(count));
    broadcast(items.data(), sizeof items[0], count, from);
  }

  std::vector<std::uint64_t> gather(std::uint64_t mine);  // every rank's
  bool any(bool mine);                                    // whether it is true on any rank

  // What work() returns. Where it throws an Error on any rank, all leave and throw the first such rank's.
  template <class Work>
  auto together(Work&& work) {
    std::optional<decltype(work())> result;
    std::optional<Error> error;
    try {
      result.emplace(work());
    } catch (const Error& mine) {
      if (size_ == 1) throw;
      error = mine;
    }
    throw_if_any(error);
    return std::move(*result);
  }

  // The last call of all ranks: none may end before it.
  virtual void leave() { has_left_ = true; }
  bool has_left() const { return has_left_; }
  // Ends the other ranks too, by force; for an error that they do not know of.
  virtual void abort(Exit) {}

 protected:
  int rank_ = 0, size_ = 1;
  bool has_left_ = false;

 private:
  void throw_if_any(const std::optional<Error>& mine);
};

// The one rank of a run that is not shared.
inline Communicator& one_rank() {
  static Communicator alone;
  return alone;
}

// The ranks that mpirun or srun started. Error: this build has no MPI; or MPI finds one rank alone where the
// environment tells of more.
std::unique_ptr<Communicator> mpi_ranks();

// `items` shared out evenly: rank r has [cut[r], cut[r+1]).
std::vector<Index> even_cut(Index items, int ranks);

}  // namespace normscope
