// The processes that share a run, called ranks as in MPI. A run of one process has one rank.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/types.h"

namespace normscope {

// Collective communication: all ranks call the same functions in the same order. It moves numbers and never
// adds any, because the order of a sum, and so its bits, would depend on the number of ranks. This base class
// is the only rank of a run.
class Ranks {
 public:
  virtual ~Ranks() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_first() const { return rank_ == 0; }  // the rank that writes files and messages
  virtual int on_this_machine() const { return 1; }
  std::string prefix() const;  // of messages: "[mpi] rank 3 on node07: "; empty on the first rank

  // all = every rank's `mine`, in the order of ranks. All give equally many items.
  template <class Item>
  void gather(std::span<const Item> mine, std::vector<Item>& all) const {
    all.resize(mine.size() * static_cast<std::size_t>(size_));
    gather_bytes(mine.data(), mine.size_bytes(), all.data());
  }
  bool any(bool mine) const;  // whether it is true on any rank

  // Sends the first rank's items to all; `items` gets their size.
  template <class Item>
  void broadcast(std::vector<Item>& items) const {
    Index count = std::ssize(items);
    broadcast_bytes(&count, sizeof count, 0);
    items.resize(static_cast<std::size_t>(count));
    broadcast_bytes(items.data(), items.size() * sizeof(Item), 0);
  }
  virtual void broadcast_bytes(void* /*bytes*/, std::size_t /*count*/, int /*from*/) const {}

  // Rank r owns numbers [slice_begin(n, r), slice_begin(n, r + 1)) of a block of n.
  Index slice_begin(Index n, int r) const { return n * r / size_; }
  // received = this rank's slice of every rank's block, in the order of ranks. (MPI_Alltoallv)
  virtual void exchange_slices(const std::vector<float>& /*block*/, std::vector<float>& /*received*/) const {}
  // Sends each rank's slice of the block to all. (MPI_Allgatherv)
  virtual void gather_slices(std::vector<float>& /*block*/) const {}

  // Returns work(). If it throws an Error on any rank, all ranks leave and throw that of the first of them.
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
    throw_first(error);
    return std::move(*result);
  }

  // Usage Error unless `mine`, a line about the inputs, is equal on all ranks.
  void require_same(const std::string& mine);

  // The last call of all ranks; no process may end before it.
  virtual void leave() { has_left_ = true; }
  bool has_left() const { return has_left_; }
  // Ends the other ranks too, after an Error on this one alone.
  virtual void abort(Exit) {}

 protected:
  virtual void gather_bytes(const void* mine, std::size_t count, void* all) const;
  virtual std::string name() const { return ""; }

  int rank_ = 0, size_ = 1;
  bool has_left_ = false;

 private:
  void throw_first(const std::optional<Error>& mine);
};

// The only rank of a run of one process.
inline Ranks& one_rank() {
  static Ranks alone;
  return alone;
}

// The ranks that mpirun or srun started. Usage Error: this build has no MPI, or not the launcher's.
std::unique_ptr<Ranks> mpi_ranks();

}  // namespace normscope
