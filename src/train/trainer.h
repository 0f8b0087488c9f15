// The training loop: steps, logs, evaluations, checkpoints, and the results at the end.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "core/machine.h"
#include "data/corpus.h"
#include "logs/record.h"
#include "logs/run_folder.h"
#include "train/checkpoint.h"
#include "train/step.h"

namespace normscope {

// Receives the events of a run, for the command line to show.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  // The step's row of metrics.csv; the mean time of the last steps.
  virtual void on_step(const MetricsRow&, double /*seconds_per_step*/) {}
  virtual void on_evaluation(Index /*step*/, double /*val_loss*/) {}
  virtual void on_note(const std::string&) {}
  virtual void on_sites(const std::vector<SiteRow>&) {}  // the step's rows of layers.csv
};

class Trainer {
 public:
  // All but `config` must outlive the trainer. `folder` is nullptr at all ranks but the first.
  Trainer(const RunConfig& config, const Corpus& corpus, RunFolder* folder, TrainObserver& observer,
          Ranks& ranks = one_rank());

  // Loads the folder's checkpoint. Returns false if there is none.
  bool resume();

  // Takes the weights of a parent (require_parent()), to train from step 0. Returns the parent's step.
  Index start_from(const Parent& parent);

  // Trains until something ends the run (see take_steps()), and writes the run folder: weights and sample at
  // its end, if it is done. The thread count is chosen by trial up to `max_threads_tried`; 0: it stays as it
  // is.
  RunRecord run(const std::atomic<bool>& stop, int max_threads_tried = 0);

  const RunRecord& record() const { return record_; }
  // Whether the record is that of a run's last step, after which run() only writes the results.
  bool has_results() const {
    return corpus_.val.empty() || record_.final_val_loss || record_.evaluation_is_pending();
  }
  const Model<float>& model() const { return model_; }

 private:
  struct Step;

  void send();
  void begin();

  // What ends a run, as its status; src/README.md lists the causes with their exit codes: status_done, the
  // last step; status_diverged, a number that is not finite: a loss, gradient or batch moment that skip()
  // does not skip, a weight, or an evaluation; status_interrupted, `stop`, which signals set
  // (stop_on_signals()).
  std::string_view take_steps(const std::atomic<bool>& stop, int max_threads_tried);
  Step plan(Index number) const;
  bool take(Step& step);
  void compute(Step& step);
  void fill_row(Step& step, float loss, double grad_norm) const;
  bool skip(const Step& step);
  std::string_view diverge(Step& step);
  void observe_sites(const Step& step);
  void take_time(Step& step, double seconds);
  void evaluate_model(Step& step, const std::atomic<bool>& stop);
  void keep_if_due();
  void log_metrics(Step& step);
  std::vector<CsvWriter*> open_logs();
  void save();

  std::string_view finish(const std::atomic<bool>& stop);
  void write_summary(std::string_view status);
  void write_sample(const std::atomic<bool>& stop);
  void add_ngrams(const std::atomic<bool>& stop);
  CheckpointMeta run_meta() const { return {config_, corpus_}; }

  const RunConfig config_;
  const Corpus& corpus_;
  RunFolder* const folder_;  // nullptr: writes nothing
  TrainObserver& observer_;
  Ranks& ranks_;
  Model<float> model_;
  Optimizer<float> optimizer_;
  StepRunner runner_;
  SiteStatistics statistics_;
  RunRecord record_;
  std::optional<CsvWriter> metrics_log_;  // if there is a folder
  std::optional<LayerLogs> layer_logs_;
  const Index tokens_per_step_;
  Stopwatch clock_;              // since run() began
  double earlier_seconds_ = 0;   // of earlier processes, until their last summary
  double step_seconds_ = 0;      // total time of the run's steps
  double seconds_per_step_ = 0;  // exponential moving average
};

}  // namespace normscope
