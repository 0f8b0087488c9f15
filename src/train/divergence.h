// The report of a diverged run, from the statistics of the steps before.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "run/record.h"
#include "telemetry/site_statistics.h"
#include "train/optimizer.h"

namespace normscope {

// The site statistics of the last recorded steps.
class RecentSteps {
 public:
  struct Step {
    Index step;
    std::vector<SiteRow> sites;
  };

  // Whether to record a step's site statistics even if no log is due: in the first 10 steps and for 10 steps
  // after a gradient spike, so that a divergence report has a history. Recording changes no bit of the run.
  bool should_record() const { return steps_to_record_ > 0; }

  void add_norm(double grad_norm);  // of every step
  void add(Index step, std::vector<SiteRow> sites);
  const std::deque<Step>& steps() const { return steps_; }

  // Conversion to and from numbers in a checkpoint, so that a resumed run reports what an uninterrupted one
  // reports.
  std::vector<double> to_numbers() const;
  void from_numbers(std::span<const double> numbers, Index n_layer);

 private:
  static constexpr Index recorded_after_spike = 10;

  std::deque<Step> steps_;
  Index steps_to_record_ = recorded_after_spike;
  double grad_norm_ema_ = 0;  // exponential moving average; 0: no step yet
};

// The first tensor of a step, computed with every tap on, that is not finite: a site, else a parameter's
// gradient, else the loss.
FirstNonfinite first_nonfinite(const SiteStatistics& statistics, const GradientNorms& norms,
                               const ParameterLayout& layout, Index step);

// "the gradient of block 1 ffn_hidden", "the logits".
std::string text_of(const FirstNonfinite& first, Index n_layer);

// One line: "step 41: the gradient of block 1 ffn_hidden became non-finite; activations had grown 30 times
// since step 20 (most: block 12 stream)". `failed_step`: the sites of the step that diverged.
std::string divergence_report(const FirstNonfinite& first, const std::vector<SiteRow>& failed_step,
                              const RecentSteps& recent);

}  // namespace normscope
