// The processes that share a run, called ranks as in MPI. A run of one process has one rank.
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

// The communication between ranks. It moves numbers and never adds any, because the order of a sum, and so
// its bits, would depend on the number of ranks. All ranks call every function but the one-line ones, in the
// same order. This base class is the only rank of a run.
class Communicator {
 public:
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_first() const { return rank_ == 0; }  // the rank that writes files and messages
  virtual std::string machine() const { return ""; }
  std::string said_here() const;  // "[mpi] rank 3 on node07: "; empty at the first rank

  // Rank r has items [cut[r], cut[r+1]) of an array; afterwards all ranks have all items. (MPI_Allgatherv)
  virtual void complete(void* /*items*/, Index /*bytes_per_item*/, std::span<const Index> /*cut*/) {}
  template <class Item>
  void complete(std::vector<Item>& items, std::span<const Index> cut) {
    complete(items.data(), sizeof(Item), cut);
  }

  // Rank r receives lines [cut[r], cut[r+1]) of the block of every rank s with place[s] >= 0, at line
  // place[s] of `parts`. A line is 16 floats. (MPI_Alltoallv)
  virtual void exchange(const float* /*block*/, std::span<const Index> /*cut*/,
                        std::span<const Index> /*place*/, float* /*parts*/) {}

  // Sends items, or a vector or string of any length, from one rank to all.
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

  // Returns work(). If it throws an Error on any rank, all ranks leave and throw the Error of the first of
  // them.
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

  // The last call of all ranks; no process may end before it.
  virtual void leave() { has_left_ = true; }
  bool has_left() const { return has_left_; }
  // Kills the other ranks too, after an Error that only this rank has.
  virtual void abort(Exit) {}

 protected:
  int rank_ = 0, size_ = 1;
  bool has_left_ = false;

 private:
  void throw_if_any(const std::optional<Error>& mine);
};

// The only rank of a run of one process.
inline Communicator& one_rank() {
  static Communicator alone;
  return alone;
}

// The ranks that mpirun or srun started. Error: this build has no MPI, or MPI finds one rank while the
// environment has more.
std::unique_ptr<Communicator> mpi_ranks();

// Divides `items` evenly: rank r has [cut[r], cut[r+1]).
std::vector<Index> even_cut(Index items, int ranks);

}  // namespace normscope
