// The update of a whole model: learning rate, clipping, the optimiser, weight decay on matrices only.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/parallel.h"
#include "kernels/pointwise.h"
#include "model/parameters.h"

namespace normscope {

// The rate of update s = 1..S, w = warmup_steps: lr*s/w for s <= w. Then, with p = (s-w)/(S-w): cosine
// min_lr + (lr - min_lr)(1 + cos(pi p))/2; linear lr + (min_lr - lr) p; constant lr; wsd (warm-up, stable,
// decay) lr, and in the last share `cooldown` of the steps after the warm-up linear to min_lr. A single step
// after the warm-up (S-w = 1) trains at lr.
double learning_rate(const TrainConfig& config, Index step);

// A tensor with a row in params.csv: a parameter, or the weights of queries, keys or values in
// attn.qkv.weight.
struct ParameterPart {
  int parameter;
  std::string name;
  Index offset, size;  // numbers of the block
};
std::vector<ParameterPart> parts_of(const ParameterLayout& layout);

// Sums over each part, in blocks of fixed size that are added in order: equal bits at any thread count.
template <class Sum>
class PartSums {
 public:
  struct Block {
    int part;
    Index begin, count;  // numbers of the block of parameters
  };

  explicit PartSums(const std::vector<ParameterPart>& parts);

  // Sets sums[p] to the sum of measure(block) over part p's blocks.
  template <class Measure>
  void measure(std::vector<Sum>& sums, Measure measure_block) {
    parallel_for(std::ssize(blocks_), [&](Index i) { by_block_[i] = measure_block(blocks_[i]); });
    sums.assign(parts_, Sum{});
    for (std::size_t i = 0; i < blocks_.size(); ++i) sums[blocks_[i].part] += by_block_[i];
  }

 private:
  std::size_t parts_;
  std::vector<Block> blocks_;
  std::vector<Sum> by_block_;
};

// Norms of the gradient before clipping.
template <class Real>
class GradientNorms {
 public:
  explicit GradientNorms(const ParameterLayout& layout);

  void measure(const ParameterBlock<Real>& gradients);

  std::vector<ParameterPart> parts;
  std::vector<double> by_part;
  double total = 0;

 private:
  PartSums<double> sums_;
};

// min(1, limit / norm); 1 where the limit is 0 (off).
double clip_factor(double grad_clip, double norm);

// Laid out like a ParameterBlock.
template <class Real>
struct Moments {
  std::vector<Real> first;   // AdamW's m; or the momentum buffer
  std::vector<Real> second;  // AdamW's v; of Muon's matrices the last direction; else 0
};

template <class Real>
class Optimizer {
 public:
  // Keeps a reference to the layout.
  Optimizer(const TrainConfig& config, const ParameterLayout& layout);

  // Update number `step`, counted from 1, with the gradients times `gradient_scale`. Returns the change of
  // each part, in the order of parts_of(), valid until the next update.
  const std::vector<WeightChange>& update(Index step, double lr, double gradient_scale,
                                          const ParameterBlock<Real>& gradients,
                                          ParameterBlock<Real>& parameters);

  Moments<Real> moments;

 private:
  bool has_direction(const ParameterPart& part) const;
  void set_directions(Real gradient_scale, const ParameterBlock<Real>& gradients);

  TrainConfig config_;
  const ParameterLayout& layout_;
  std::vector<ParameterPart> parts_;
  PartSums<WeightChange> sums_;
  std::vector<WeightChange> changes_;
};

}  // namespace normscope
