// The record of a run, summary.json: its figures, and the machine and build on which its bits and speed
// depend.
#pragma once

#include "config/run_config.h"
#include "core/random.h"
#include "data/ngram.h"
#include "io/json.h"
#include "logs/run_folder.h"

namespace normscope {

// A run that is killed stays "running", with the figures of its last checkpoint.
inline constexpr const char *status_running = "running", *status_done = "done", *status_diverged = "diverged",
                            *status_interrupted = "interrupted", *status_probe = "probe";

// The figures of a run. A checkpoint keeps those that a resumed run goes on with: for_each_kept_figure().
struct RunRecord {
  std::string status;  // one of the above
  Index steps = 0;     // finished steps, skipped updates included
  Index params = 0, vocab = 0;
  std::string corpus_hash;                                                // of the bytes of its texts
  std::optional<double> final_train_loss, final_val_loss, best_val_loss;  // nats
  std::optional<Index> best_step;
  std::optional<double> grad_first_last, growth;  // see below
  std::optional<double> branch_share;             // at step 1; see below
  NgramLosses ngrams = unknown_ngrams;            // of the validation split
  Index skipped = 0;                              // updates, by on_nonfinite: skip
  std::optional<double> seconds;       // wall time of all processes of the run, evaluations and files included
  std::optional<double> tokens_per_s;  // of the steps alone
  Index ranks = 1;
  std::uint64_t trajectory_hash = fnv1a_basis;    // over loss and grad_norm of every step
  std::optional<FirstNonfinite> first_nonfinite;  // of a diverged run
  // What the config of the run does not say of it: "past", a list of {"step", "train.steps"}, the train.steps
  // that the learning rate followed up to that step; "parent", the run from which it started, as "folder",
  // "step", "hash" of the weights, and "moments", whether it took those too; "logged_since", the step after
  // which the logs have every row that the config asks for: at that step a resume changed keys of log or
  // eval, or a log was missing.
  Json history = Json::object();

  // --- in checkpoints, not in summary.json ---
  Index updates = 0;  // behind the moments; with train --moments those of the parent too
  Index consecutive_skips = 0;
  std::optional<Index>
      earlier_batches;  // with train --moments: drawn by the parent; this run's come behind them
  float train_loss_max = 0, grad_norm_max = 0;  // since the last row of metrics.csv
  // Of a step whose evaluation was interrupted. It is made after a resume, and then the step's row is logged.
  std::optional<double> unlogged_grad_norm;
  bool evaluation_is_pending() const { return unlogged_grad_norm.has_value(); }
};

// Calls use(name, figure) for each figure that both summary.json and a checkpoint have.
template <class Run, class Use>
void for_each_figure(Run& run, const Use& use) {
  use("final_train_loss", run.final_train_loss);
  use("final_val_loss", run.final_val_loss);
  use("best_val_loss", run.best_val_loss);
  use("best_step", run.best_step);
  use("grad_first_last", run.grad_first_last);
  use("growth", run.growth);
  use("branch_share", run.branch_share);
  use("skipped", run.skipped);
  use("trajectory_hash", run.trajectory_hash);
}

// The same for each figure that a checkpoint has.
template <class Run, class Use>
void for_each_kept_figure(Run& run, const Use& use) {
  for_each_figure(run, use);
  use("step", run.steps);
  use("updates", run.updates);
  use("skipped_in_a_row", run.consecutive_skips);
  use("earlier_batches", run.earlier_batches);
  use("train_loss_max", run.train_loss_max);
  use("grad_norm_max", run.grad_norm_max);
  use("unlogged_grad_norm", run.unlogged_grad_norm);
}

// summary.json, with null for figures that the run does not have; a probe's leaves out those of training.
void write_record(const std::string& path, const RunRecord& run, const TrainConfig& config);

// An entry of a summary.json; null if the file is missing, is damaged or has none.
Json record_in(const std::string& path, const char* key);
std::optional<FirstNonfinite> first_nonfinite_in(const std::string& path);

// "normscope 0.1.0 (commit 93fd48b6c1), GCC 12.2.0, avx512, OpenBLAS 0.3.21 (openmp, Cooperlake)"
std::string version_text();
// "portable" if a run trains to the same bits on every processor with a fused multiply-add, whatever the
// compiler, version of glibc, threads and ranks; else the reason why not.
std::string digits_text(const TrainConfig& config);
std::string blas_text();  // "OpenBLAS 0.3.21 (openmp, Cooperlake)"

// "the gradient of block 1 ffn_hidden", "the logits".
std::string text_of(const FirstNonfinite& first);

// --- figures, computed from rows of the logs ---

// ||gradient of block 1's parameters|| / ||block L's||.
double grad_first_last(const std::vector<ParameterRow>& rows, Index n_layer);

// rms of stream L / rms of stream 1: of one block, 1. The embedding may be far smaller than what any block returns.
double growth(const std::vector<SiteRow>& rows);

// Mean of the rows' branch_share; nothing if there are none or the mean is not finite.
std::optional<double> branch_share(const std::vector<SiteRow>& rows);

}  // namespace normscope
