// The update of a whole model: the optimiser, and weight decay on matrices only.
#pragma once

#include <vector>

#include "config/run_config.h"
#include "kernels/update_rules.h"
#include "train/gradient_norms.h"

namespace normscope {

// Laid out like a ParameterBuffer.
template <class Real>
struct Moments {
  std::vector<Real> first;   // AdamW's m; the momentum of SGD and Muon
  std::vector<Real> second;  // AdamW's v; it stays 0 for weights that SGD or Muon updates
};

template <class Real>
class Optimizer {
 public:
  // The layout must outlive the optimiser.
  Optimizer(const TrainConfig& config, const ParameterLayout& layout);

  // Take an update, of this number, counted from 1 without skipped steps, with the gradients times
  // `gradient_scale`. The result is the change of each part, in the order of parts_of(), valid until the next
  // update.
  const std::vector<WeightChange>& update(Index number, double lr, double gradient_scale,
                                          const ParameterBuffer<Real>& gradients,
                                          ParameterBuffer<Real>& parameters);

  Moments<Real> moments;

 private:
  bool uses_muon(const ParameterPart& part) const;
  UpdateRule<Real> rule_of(const ParameterPart& part, Index number, double lr, double gradient_scale) const;
  void set_directions(double gradient_scale, const ParameterBuffer<Real>& gradients);

  TrainConfig config_;
  const ParameterLayout& layout_;
  std::vector<ParameterPart> parts_;
  PartSums<WeightChange> sums_;
  std::vector<Real> directions_;  // with Muon: of its matrices, laid out like a ParameterBuffer
  std::vector<WeightChange> changes_;
};

}  // namespace normscope
