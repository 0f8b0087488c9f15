// The update of a whole model: clipping, the optimiser, weight decay on matrices only.
#pragma once

#include "config/run_config.h"
#include "kernels/pointwise.h"
#include "model/parameters.h"

namespace normscope {

// Norms of the gradient, before clipping: of every parameter's, in the layout's order, and of the whole.
struct GradientNorms {
  std::vector<double> by_parameter;
  double total = 0;
};
template <class Real>
void measure_gradient(const ParameterLayout& layout, const ParameterBlock<Real>& gradients,
                      GradientNorms& norms);
template <class Real>
GradientNorms gradient_norms(const ParameterLayout& layout, const ParameterBlock<Real>& gradients);

// min(1, limit / norm); 1 where the limit is 0 (off).
double clip_factor(double grad_clip, double norm);

template <class Real>
class Optimizer {
 public:
  Optimizer(const TrainConfig& config, const ParameterLayout& layout)
      : config_(config), layout_(layout), first_moment(layout), second_moment(layout) {}

  // Update number `step`, counted from 1, with the gradients times `gradient_scale`. What it did to each
  // parameter, in the layout's order, is good until the next update.
  const std::vector<WeightChange>& update(Index step, double lr, double gradient_scale,
                                          const ParameterBlock<Real>& gradients,
                                          ParameterBlock<Real>& parameters);

 private:
  TrainConfig config_;
  const ParameterLayout& layout_;
  std::vector<WeightChange> changes_;

 public:
  ParameterBlock<Real> first_moment;   // AdamW's m; or the momentum buffer
  ParameterBlock<Real> second_moment;  // AdamW's v; else 0
};

}  // namespace normscope
