// The training loop: steps, logs, evaluations, checkpoints, and what is left when it ends.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "data/corpus.h"
#include "train/checkpoint.h"
#include "train/divergence.h"
#include "train/run_folder.h"
#include "train/step.h"

namespace normscope {

enum class RunStatus { done, diverged, interrupted };
constexpr const char* name_of(RunStatus status) {
  constexpr const char* names[] = {"done", "diverged", "interrupted"};
  return names[static_cast<int>(status)];
}

// summary.json, with nothing where there is nothing to say.
struct RunSummary {
  RunStatus status = RunStatus::done;
  Index steps = 0;  // finished updates
  Index params = 0, vocab = 0;
  std::optional<double> final_train_loss, final_val_loss, best_val_loss;
  Index best_step = 0;
  std::optional<double> grad_first_last, growth;
  std::optional<double> branch_share;  // at step 1
  std::optional<double> unigram;       // nats: what counting characters achieves on the validation part
  double seconds = 0, tokens_per_s = 0;
  Index skipped = 0;
  std::uint64_t trajectory_hash = 0;
  std::optional<FirstNonfinite> first_nonfinite;
  std::string story;  // of a diverged run
};

struct Progress {
  Index step, steps;
  float loss;
  double tokens_per_s;  // of the last steps, logging included
  double seconds_left;
};

// Is told how a run goes; the command line shows it.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_step(const Progress&) {}
  virtual void on_evaluation(Index /*step*/, double /*val_loss*/) {}
  virtual void on_note(const std::string&) {}
  virtual void on_branch_share(double) {}  // after step 1; see branch_share() in run_folder.h
};

class Trainer {
 public:
  // `corpus` and `folder` must outlive the trainer.
  Trainer(const RunConfig& config, const Corpus& corpus, RunFolder& folder, TrainObserver& observer);

  // Goes on from the folder's checkpoint, or its previous one where that is damaged. False: there is none.
  bool resume();

  // From where it is to the last step, or until `stop` becomes true. Writes every file of the run folder.
  RunSummary run(const std::atomic<bool>& stop);

  const TrainState& state() const { return state_; }
  const Model<float>& model() const { return model_; }

 private:
  struct Logs;
  bool due(Index step, Index every) const;
  double evaluate_now(bool whole);
  void after_evaluation(double val_loss);
  void settle_best();
  Logs open_logs();
  std::vector<WeightChange> no_change() const;
  void log_statistics(Logs& logs, const std::vector<SiteRow>& sites, const StepResult& result,
                      const std::vector<WeightChange>& changes);
  FirstNonfinite find_nonfinite(Index step);
  void tell_divergence(Logs& logs, Index step);
  void save(Logs& logs);
  FileFacts facts() const { return {config_, corpus_}; }

  const RunConfig config_;
  const Corpus& corpus_;
  RunFolder& folder_;
  TrainObserver& observer_;
  Model<float> model_;
  Optimizer<float> optimizer_;
  StepRunner runner_;
  SiteStatistics<float> statistics_;
  RecentSteps recent_;
  TrainState state_;
  RunSummary summary_;
  bool resumed_ = false;
  Keep keep_ = Keep::previous;  // what the next save does with the checkpoint before it
  Index saved_best_step_ = 0;   // best_step in the last checkpoint
};

}  // namespace normscope
