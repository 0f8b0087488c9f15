// The processes that share a run, called ranks as in MPI. A run of one process has one rank.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/types.h"

namespace normscope {

// Collective communication: all ranks call the same functions in the same order. It moves numbers and never
// adds any, because the order of a sum, and so its bits, would depend on the number of ranks. The base class
// implements a run of one process.
class Ranks {
 public:
  virtual ~Ranks() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_first() const { return rank_ == 0; }  // the rank that writes files and messages
  std::string prefix() const { return is_first() ? "" : text("[mpi] rank ", rank_, ": "); }  // of messages

  // Sets `all` to the items of every rank in the order of ranks. Each rank gives equally many.
  template <class Item>
  void gather(std::span<const Item> mine, std::vector<Item>& all) const {
    all.resize(mine.size() * static_cast<std::size_t>(size_));
    gather_bytes(mine.data(), mine.size_bytes(), all.data());
  }
  bool any(bool mine) const;  // whether `mine` is true on any rank

  // Copies the bytes of rank `from` to all others, each of which has room for as many. (MPI_Bcast)
  virtual void broadcast(void* /*bytes*/, std::size_t /*count*/, int /*from*/ = 0) const {}
  std::string broadcast_text(std::string text, int from = 0) const;  // of that rank

  // Rank r owns numbers [slice_begin(n, r), slice_begin(n, r + 1)) of n.
  Index slice_begin(Index n, int r) const { return n * r / size_; }
  // Sets `received` to this rank's slice of every rank's numbers, in the order of ranks. (MPI_Alltoallv)
  virtual void exchange_slices(const std::vector<float>& /*numbers*/,
                               std::vector<float>& /*received*/) const {}
  // Sends each rank's slice of the numbers to all. (MPI_Allgatherv)
  virtual void gather_slices(std::vector<float>& /*numbers*/) const {}

  // Runs work(). If it throws an Error on any rank, all ranks leave and throw that of the first of them.
  void together(const std::function<void()>& work);
  // Usage Error unless `mine`, a line about the inputs, is equal on all ranks.
  void require_same(const std::string& mine);

  // The last call of all ranks; no process may end before it.
  virtual void leave() { has_left_ = true; }
  bool has_left() const { return has_left_; }
  // Ends the other ranks too, after an Error on this one alone.
  virtual void abort(Exit) {}

 protected:
  virtual void gather_bytes(const void* mine, std::size_t count, void* all) const;

  int rank_ = 0, size_ = 1;
  bool has_left_ = false;
};

// The only rank of a run of one process.
inline Ranks& one_rank() {
  static Ranks alone;
  return alone;
}

// The ranks that mpirun or srun started. Usage Error: this build has no MPI.
std::unique_ptr<Ranks> mpi_ranks();

}  // namespace normscope
