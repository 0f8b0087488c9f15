#include "train/gradient_sum.h"

#include <algorithm>

#include "kernels/pointwise.h"

namespace normscope {

GradientSum::GradientSum(Index size, const Ranks& ranks)
    : ranks_(ranks),
      begin_(ranks.slice_begin(size, ranks.rank())),
      slice_(ranks.slice_begin(size, ranks.rank() + 1) - begin_) {}

void GradientSum::add(const std::vector<float>& gradients, Index first, Index count) {
  if (ranks_.size() > 1) ranks_.exchange_slices(gradients, received_);
  const float* next = ranks_.size() > 1 ? received_.data() : gradients.data();
  for (Index micro = first; micro < first + count; ++micro, next += slice_.size())
    axpby(std::ssize(slice_), 1.0f, next, micro == 0 ? 0.0f : 1.0f, slice_.data());
}

void GradientSum::finish(std::vector<float>& gradients) const {
  std::ranges::copy(slice_, gradients.begin() + begin_);
  ranks_.gather_slices(gradients);
}

}  // namespace normscope
