// Batch norm's running mean and variance, PyTorch's buffers: no parameters, moved by each step that is taken,
// used in evaluation.
#pragma once

#include <span>
#include <vector>

#include "model/parameters.h"

namespace normscope {

constexpr double running_momentum = 0.1;

template <class Real>
struct RunningStatistics {
  // Means of 0, variances of 1, at the offsets of layout.buffers().
  explicit RunningStatistics(const ParameterLayout& layout);

  // new = 0.9 old + 0.1 batch for each micro-batch of a step, in their order: a whole number of `batch` arrays.
  void move(std::span<const Real> batches);

  std::vector<Real> values;
  std::vector<Real> batch;  // of the last training pass, laid out alike; variances are unbiased
};

}  // namespace normscope
