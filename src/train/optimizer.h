// The update of a whole model: learning rate, clipping, the optimiser, weight decay on matrices only.
#pragma once

#include "config/run_config.h"
#include "dist/shares.h"
#include "kernels/pointwise.h"
#include "model/parameters.h"

namespace normscope {

// The rate of update s = 1..S, w = warmup_steps: lr*s/w for s <= w. Then, with p = (s-w)/(S-w): cosine
// min_lr + (lr - min_lr)(1 + cos(pi p))/2; linear lr + (min_lr - lr) p; constant lr.
double learning_rate(const TrainConfig& config, Index step);

// Norms of the gradient before clipping: of each parameter, in the layout's order, and of the whole.
struct GradientNorms {
  std::vector<double> by_parameter;
  double total = 0;
  std::vector<double> scratch;
};
// Every rank measures its share of the gradient; all get all norms.
template <class Real>
void measure_gradient(const Shares& shares, const ParameterBlock<Real>& gradients, GradientNorms& norms);

// min(1, limit / norm); 1 where the limit is 0 (off).
double clip_factor(double grad_clip, double norm);

// Laid out like a ParameterBlock or a share of one.
template <class Real>
struct Moments {
  std::vector<Real> first;   // AdamW's m; or the momentum buffer
  std::vector<Real> second;  // AdamW's v; else 0
};

template <class Real>
class Optimizer {
 public:
  // Each rank has the moments of its share of the parameters.
  Optimizer(const TrainConfig& config, const ParameterLayout& layout, Communicator& ranks = one_rank());

  // Update number `step`, counted from 1, with the gradients times `gradient_scale`: each rank updates its
  // share and receives the others'. Returns the change of each parameter, in the layout's order, valid until
  // the next update.
  const std::vector<WeightChange>& update(Index step, double lr, double gradient_scale,
                                          const ParameterBlock<Real>& gradients,
                                          ParameterBlock<Real>& parameters);

  // Collects the moments of all parameters at the first rank (the others return empty ones), and distributes
  // them from there. Both overwrite `scratch`.
  Moments<Real> gather_moments(ParameterBlock<Real>& scratch) const;
  void scatter_moments(const Moments<Real>& all, ParameterBlock<Real>& scratch);

 private:
  TrainConfig config_;
  Shares shares_;
  std::vector<WeightChange> changes_, scratch_;

 public:
  Moments<Real> moments;  // of this rank's share
};

}  // namespace normscope
