// What went on before a run diverged: the last steps' statistics, and the story they tell.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "telemetry/site_statistics.h"
#include "train/optimizer.h"

namespace normscope {

// The first tensor of a diverged step that was not finite: a site, or a parameter's gradient.
struct FirstNonfinite {
  Index step = 0;
  int layer = 0;
  std::string site, param;  // one of the two
  bool in_gradient = false;
};

// The site statistics of the last steps that were listened to.
class RecentSteps {
 public:
  struct Step {
    Index step;
    std::vector<SiteRow> sites;
  };

  // Whether a step is worth listening to although no log asks for it: a run's first ten, and the ten that
  // follow a gradient far above what was usual. Such steps go before a divergence; listening costs little and
  // changes no bit.
  bool worth_watching() const { return watch_ > 0; }

  void add_norm(double grad_norm);  // of every step
  void add(Index step, std::vector<SiteRow> sites);
  const std::deque<Step>& steps() const { return steps_; }

  // All of it as numbers, for a checkpoint: a resumed run tells the story that an uninterrupted one tells.
  std::vector<double> to_numbers() const;
  void from_numbers(std::span<const double> numbers, Index n_layer);

 private:
  static constexpr int watched_steps = 10;

  std::deque<Step> steps_;
  int watch_ = watched_steps;  // steps yet to be watched
  double usual_ = 0;           // grad_norm's moving average; 0: none was heard yet
};

// What broke in a step that was computed with every tap on: the first site, else the first parameter's
// gradient, else the loss.
FirstNonfinite first_nonfinite(const SiteStatistics<float>& statistics, const GradientNorms& norms,
                               const ParameterLayout& layout, Index step);

// "the gradient of block 1 ffn_hidden", "the logits".
std::string text_of(const FirstNonfinite& first, Index n_layer);

// One line: "step 41: the gradient of block 1 ffn_hidden became non-finite; activations had grown 30 times
// since step 20 (most in block 12 stream)". `broken`: the sites of the step that diverged.
std::string divergence_story(const FirstNonfinite& first, const std::vector<SiteRow>& broken,
                             const RecentSteps& recent);

}  // namespace normscope
