// One training step's loss and gradients, micro-batch by micro-batch, and the loss over a whole text.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "config/run_config.h"
#include "data/batches.h"
#include "logs/run_folder.h"
#include "logs/site_stats.h"
#include "model/model.h"
#include "train/optimizer.h"
#include "train/gradient_sum.h"
#include "train/ranks.h"

namespace normscope {

struct StepResult {
  explicit StepResult(const ParameterLayout& layout) : norms(layout) {}

  float loss = 0;              // mean over the whole batch
  GradientNorms<float> norms;  // of the whole batch's gradient, before clipping
  // Moments of every batch norm, micro-batch by micro-batch, for RunningStatistics::move.
  std::vector<float> batch_moments;

  float grad_norm() const { return static_cast<float>(norms.total); }
  bool finite() const {
    return std::isfinite(loss) && std::isfinite(norms.total) &&
           std::ranges::all_of(batch_moments, [](float x) { return std::isfinite(x); });
  }
};

class StepRunner {
 public:
  // `config`, `model` and `train_text` must outlive the runner. A probe sets `dropout` to false. Ranks take
  // micro-batches in turn: rank r of R computes numbers r, r+R, ...
  StepRunner(const RunConfig& config, Model<float>& model, std::span<const Token> train_text,
             bool dropout = true, const Ranks& ranks = one_rank());

  // Loss and gradients of step s of the run; the model's gradients are those of the whole batch, on every
  // rank. `statistics` gets every site of every micro-batch. The result is valid until the next call, which
  // reuses its memory.
  const StepResult& compute(Index step, SiteStatistics* statistics = nullptr);

  // Draw micro-batch `micro` of step s without running it; with train.fixed_batch, that of step 1.
  void fill(Index step, Index micro = 0);

  // The tokens and targets of the last micro-batch.
  Pass last_batch() const { return {tokens_, targets_, model_.config().context}; }

 private:
  double compute_micro_batch(Index step, Index micro, TapListener<float>* listener);
  void add_statistics(Index micro_batches, SiteStatistics& statistics);

  BatchSampler sampler_;
  RandomStream dropout_stream_;
  const TrainConfig& train_;
  const bool dropout_;
  Model<float>& model_;
  const Ranks& ranks_;
  std::vector<Token> tokens_, targets_;
  StepResult result_;
  std::optional<GradientSum> sum_;  // of several micro-batches
  SiteStatistics micro_statistics_;
  // One entry for each micro-batch of a round (one a rank).
  std::vector<double> losses_;
  std::vector<float> moments_;
  std::vector<SiteSums> sites_;
  std::vector<HeadStats> heads_;
};

// Mean loss (nats per character) over batches * batch_size whole windows, evenly spaced; with 0 batches over
// every character of the text but the first. Runs batch_size windows of equal length at a time, which ranks
// take in turn. Nothing if `is_stopped`, which every rank calls before each round of them, returns true.
std::optional<double> evaluate(
    Model<float>& model, std::span<const Token> text, Index batch_size, Index batches = 0,
    const Ranks& ranks = one_rank(), const std::function<bool()>& is_stopped = [] { return false; });

// The first site of a step, computed with every tap on, that is not finite; else the first parameter whose
// gradient is not; else the loss.
FirstNonfinite first_nonfinite(const SiteStatistics& statistics, const GradientNorms<float>& norms,
                               const ParameterLayout& layout, Index step);

// The rows of params.csv for a step, with names from `norms`. `changes` is null if the update was skipped.
std::vector<ParameterRow> parameter_rows(const TrainConfig& config, const Model<float>& model,
                                         const GradientNorms<float>& norms,
                                         const std::vector<WeightChange>* changes);

}  // namespace normscope
