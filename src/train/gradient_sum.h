// The gradient of a step that has several micro-batches.
#pragma once

#include <vector>

#include "train/ranks.h"

namespace normscope {

// The sum of a step's micro-batch gradients, added in their order 0 ... n-1, each computed from zero, so that
// its bits depend neither on the number of ranks nor on threads. Ranks take micro-batches in turn. After each
// round every rank receives its slice of the round's gradients and adds them; finish() gathers the slices.
// The slice of an only rank is all of them.
class GradientSum {
 public:
  // Gradients have `size` numbers. Keeps a reference to `ranks`.
  GradientSum(Index size, const Ranks& ranks);

  // Adds micro-batches [first, first + count): rank r < count has that of first + r in `gradients`; what other
  // ranks have there is sent too, and not added.
  void add(const std::vector<float>& gradients, Index first, Index count);

  // gradients = the sum, on all ranks.
  void finish(std::vector<float>& gradients) const;

 private:
  const Ranks& ranks_;
  const Index begin_;         // of this rank's slice
  std::vector<float> slice_;  // the sum so far
  std::vector<float> received_;
};

}  // namespace normscope
