// One training step's loss and gradients, micro-batch by micro-batch, and the loss over a whole text.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>

#include "config/run_config.h"
#include "data/batches.h"
#include "dist/gradient_sum.h"
#include "model/model.h"
#include "run/logs.h"
#include "telemetry/site_statistics.h"
#include "train/optimizer.h"

namespace normscope {

struct StepResult {
  float loss = 0;                     // mean over the whole batch
  GradientNorms norms;                // of the whole batch's gradient, before clipping
  std::optional<double> noise_scale;  // sequences; empty where it was not measured
  std::vector<float>
      batch_moments;  // of batch norms, micro-batch by micro-batch: for RunningStatistics::move

  float grad_norm() const { return static_cast<float>(norms.total); }
  bool finite() const {
    return std::isfinite(loss) && std::isfinite(norms.total) &&
           std::ranges::all_of(batch_moments, [](float x) { return std::isfinite(x); });
  }
};

class StepRunner {
 public:
  // `train_text` must outlive the runner. `dropout` false: none, for a probe. Ranks share the micro-batches.
  StepRunner(const RunConfig& config, std::span<const Token> train_text, bool dropout = true,
             Communicator& ranks = one_rank());

  // Loss and gradients of step s of the run; model.gradients holds the rank's share of the gradient.
  // `statistics` gets every site of every micro-batch. `measure_noise`: the noise scale too, given several
  // micro-batches. The result is valid until the next call. Allocates nothing after the first step.
  const StepResult& compute(Model<float>& model, Index step, SiteStatistics* statistics = nullptr,
                            bool measure_noise = false);

  // Usage Error if a rank's bits of the first micro-batch are not the first rank's, because the run would
  // then depend on which rank computes what. Overwrites model.gradients.
  void require_same_bits(Model<float>& model);

  // Draws micro-batch `micro` of step s without running it.
  void fill(Index step, Index micro = 0);

  // The tokens and targets of the last micro-batch.
  Pass last_batch() const { return {tokens_, targets_, context_}; }

 private:
  double compute_micro_batch(Model<float>& model, Index step, Index micro, TapListener<float>* listener);
  double noise_scale() const;

  BatchSampler sampler_;
  RandomStream dropout_stream_;
  Index context_, batch_size_, grad_accum_;
  bool dropout_;
  std::vector<Token> tokens_, targets_;
  StepResult result_;
  Communicator& ranks_;
  std::optional<GradientSum> sum_;      // made for the model of the first step
  std::vector<double> losses_, norms_;  // of each micro-batch: its loss, the norm of its term of the gradient
  std::optional<Shares> whole_;         // all of the model as one share, to measure such a term
  GradientNorms term_norms_;            // scratch
  std::optional<SiteStatistics> micro_;  // of one micro-batch
  std::vector<char> statistics_bytes_;   // of every micro-batch
};

// Mean loss (nats per character) over batches * batch_size whole windows, evenly spaced; with 0 batches over
// every character of the text but the first. Runs batch_size windows of equal length at a time, divided among
// the ranks.
double evaluate(Model<float>& model, std::span<const Token> text, Index batch_size, Index batches = 0,
                Communicator& ranks = one_rank());

// The sizes of the model's sites.
ModelShape shape_of(const Model<float>& model);

// The rows of params.csv for a step. `changes` is null if the update was skipped.
std::vector<ParameterRow> parameter_rows(const TrainConfig& config, const Model<float>& model,
                                         const GradientNorms& norms,
                                         const std::vector<WeightChange>* changes);

}  // namespace normscope
