// The processes that share a run: "ranks", as MPI calls them. A run of one process is the case of one rank.
#pragma once

#include <span>
#include <vector>

#include "core/types.h"

namespace normscope {

// A rank's view of all of them. It moves numbers and never adds any: sums whose order depended on the number
// of ranks would have other bits. What is virtual is called by every rank, in the same order. This class
// itself is the one rank of a run that is not shared.
class Communicator {
 public:
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_first() const { return rank_ == 0; }  // the one that writes files and speaks

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

 protected:
  int rank_ = 0, size_ = 1;
};

constexpr Index floats_per_line = 16;

// The one rank of a run that is not shared.
inline Communicator& one_rank() {
  static Communicator alone;
  return alone;
}

// `items` shared out evenly: rank r has [cut[r], cut[r+1]).
inline std::vector<Index> even_cut(Index items, int ranks) {
  std::vector<Index> cut;
  for (int r = 0; r <= ranks; ++r) cut.push_back(items * r / ranks);
  return cut;
}

}  // namespace normscope
