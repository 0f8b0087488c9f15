// The division of a block of parameters into pieces of fixed size, and of the pieces among ranks. A sum over
// a parameter adds its pieces in order, so its bits depend neither on threads nor on ranks.
#pragma once

#include <span>
#include <vector>

#include "core/parallel.h"
#include "dist/communicator.h"
#include "model/parameters.h"

namespace normscope {

struct Piece {
  int parameter;
  Index begin, count;  // numbers of the block
};

class Shares {
 public:
  // Keeps references to both.
  Shares(const ParameterLayout& layout, Communicator& ranks);

  Communicator& ranks() const { return ranks_; }
  const ParameterLayout& layout() const { return layout_; }
  std::span<const Piece> pieces() const { return pieces_; }
  std::span<const Piece> mine() const {
    return std::span(pieces_).subspan(first_[at()], first_[at() + 1] - first_[at()]);
  }

  // Rank r has lines [cut[r], cut[r+1]) of the block.
  std::span<const Index> cut() const { return cut_; }
  // This rank's numbers of the block.
  Index begin() const { return cut_[at()] * floats_per_line; }
  Index size() const { return cut_[at() + 1] * floats_per_line - begin(); }

  // sums[p] = the sum of measure(piece) over parameter p's pieces; a rank measures its own pieces. `by_piece`
  // is scratch.
  template <class Sum, class Measure>
  void sum_by_parameter(std::vector<Sum>& by_piece, std::vector<Sum>& sums, Measure measure) const {
    by_piece.resize(pieces_.size());
    parallel_for(std::ssize(mine()), [&](Index i) { by_piece[first_[at()] + i] = measure(mine()[i]); });
    ranks_.complete(by_piece, first_);
    sums.assign(layout_.list().size(), {});
    for (std::size_t i = 0; i < pieces_.size(); ++i) sums[pieces_[i].parameter] += by_piece[i];
  }

 private:
  int at() const { return ranks_.rank(); }

  const ParameterLayout& layout_;
  Communicator& ranks_;
  std::vector<Piece> pieces_;
  std::vector<Index> first_;  // rank r has pieces [first_[r], first_[r+1])
  std::vector<Index> cut_;
};

}  // namespace normscope
