// The update of a whole model: clipping, the optimiser, weight decay on matrices only.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/parallel.h"
#include "kernels/pointwise.h"
#include "kernels/update_rules.h"
#include "model/parameters.h"

namespace normscope {

// A tensor with a row in params.csv: a parameter, or the weights of queries, keys or values in
// attn.qkv.weight.
struct ParameterPart {
  int parameter;
  std::string name;
  Index offset, size;  // in numbers of a ParameterBuffer
};
std::vector<ParameterPart> parts_of(const ParameterLayout& layout);

// Sums over each part, in chunks of fixed size that are added in order: equal bits at any thread count.
template <class Sum>
class PartSums {
 public:
  struct Chunk {
    int part;
    Index begin, count;  // in numbers of a ParameterBuffer
  };

  explicit PartSums(const std::vector<ParameterPart>& parts);

  // Set sums[p] to the sum of measure_chunk(chunk) over the chunks of part p.
  template <class Measure>
  void measure(std::vector<Sum>& sums, Measure measure_chunk) {
    parallel_for(std::ssize(chunks_), [&](Index i) { by_chunk_[i] = measure_chunk(chunks_[i]); });
    sums.assign(parts_, Sum{});
    for (std::size_t i = 0; i < chunks_.size(); ++i) sums[chunks_[i].part] += by_chunk_[i];
  }

 private:
  std::size_t parts_;
  std::vector<Chunk> chunks_;
  std::vector<Sum> by_chunk_;
};

// Sizes (l2 norms) of the gradient before clipping, of each part and of all.
template <class Real>
class GradientNorms {
 public:
  explicit GradientNorms(const ParameterLayout& layout);

  void measure(const ParameterBuffer<Real>& gradients);

  std::vector<ParameterPart> parts;
  std::vector<double> by_part;
  double total = 0;

 private:
  PartSums<double> sums_;
};

// min(1, grad_clip / l2), l2 the size of the whole gradient; 1 if grad_clip is 0 (off).
double clip_factor(double grad_clip, double l2);

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
