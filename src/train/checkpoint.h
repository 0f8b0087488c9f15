// Files with weights: checkpoints to resume from, and models for other programs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/random.h"
#include "data/corpus.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "train/optimizer.h"

namespace normscope {

// The progress of a run: with the config, weights and moments, all that the next step depends on.
struct TrainState {
  Index step = 0;                               // finished steps, skipped updates included
  std::uint64_t trajectory_hash = fnv1a_basis;  // over loss and grad_norm of every step
  std::optional<double> best_val_loss;
  Index best_step = 0;
  Index updates = 0;  // behind the moments; with train --moments those of the parent too
  Index skipped = 0;  // updates skipped by on_nonfinite: skip
  Index consecutive_skips = 0;
  Index earlier_batches = 0;  // with train --moments: drawn by the parent; this run's come behind them
  // Of a step whose evaluation was interrupted. It is made after a resume, and then the step's row is logged.
  std::optional<double> unlogged_grad_norm;
  // Figures of summary.json; RunRecord says what they are.
  std::optional<double> final_train_loss, final_val_loss, grad_first_last, growth, branch_share;
  float train_loss_max = 0, grad_norm_max = 0;  // since the last row of metrics.csv
};

// The run whose files are written or read.
struct CheckpointMeta {
  const RunConfig& config;
  const Corpus& corpus;
};

// A file of weights from which another run starts, with the moments beside them or without. It is read once,
// so that weights, vocabulary and moments are of one file, even if its run goes on meanwhile.
struct Parent {
  std::unique_ptr<const SafetensorsFile> file;
  bool with_moments;
};

// Error unless a run of this config can start from its parent: other names or shapes of tensors; moments
// missing or of another optimiser. Nothing else of the configs is compared: a run with placement pre_scaled
// may start from one with pre.
void require_parent(const Parent& parent, const RunConfig& config, const ParameterLayout& layout);

// Reads the weights of a parent and, with its moments, its number of updates and of batches. The result is
// the "parent" of RunRecord's history. Call require_parent() first.
Json load_parent(const Parent& parent, Model<float>& model, Moments<float>& moments, TrainState& state);

// Whether the parent trained on the text that this run validates on, as far as hashes and paths tell.
bool has_seen_validation(const Parent& parent, const CheckpointMeta& now);

// The vocabulary of a file of weights called `path`. Error: it has none, as another program's file.
Vocabulary vocabulary_in(const Metadata& metadata, const std::string& path);

// The metadata of every file of a run: format, config, vocabulary, corpus, step.
Metadata file_metadata(const CheckpointMeta& meta, Index step);

// Writes weights, moments, state and history (RunRecord's).
void save_checkpoint(const std::string& path, const CheckpointMeta& meta, const TrainState& state,
                     const Json& history, const Model<float>& model, const Moments<float>& moments);

// Reads a checkpoint into a model, all its moments and the run's history, to which another train.steps is
// added. Errors: the file is damaged; its config differs in keys that may not change on resume (usage); its
// corpus, format or metadata are not those of this run.
TrainState load_checkpoint(const std::string& path, const CheckpointMeta& meta, Model<float>& model,
                           Moments<float>& moments, Json& history);

// "another text than data/austen.txt ..." if `hash` is not that of the run's corpus, else empty.
std::string text_difference(const std::string& hash, const CheckpointMeta& now);

// Saves the weights alone, for load_state_dict of a PyTorch module.
void save_model(const std::string& path, const CheckpointMeta& meta, Index step, const Model<float>& model);

// Refuses a file with missing, misshapen or extra parameters; it may have moments and sites too. Reads the
// header alone, so that a forged one cannot cause a large allocation.
void require_weights(const SafetensorsFile& file, const ParameterLayout& layout);

// The finished steps behind the weights; 0 in another program's file, which `probe --from` takes.
Index step_of(const SafetensorsFile& file);

// Reads every parameter and running statistic by name. Call require_weights() first.
void load_model_weights(const SafetensorsFile& file, Model<float>& model);

// A model with the config and the vocabulary in its file's metadata.
struct LoadedModel {
  RunConfig config;
  Vocabulary vocab;
  std::string path;
  Index step;
  std::string corpus_hash;
  Model<float> model;
};

// The file of the newest weights of a run folder: of model, checkpoint and best.safetensors the one of the
// latest step, at a tie the first of them. Reads no more than headers. A file stands for itself.
// Errors: a damaged header; no weights (usage), with the reason: the run diverged first, was killed first, is
// no run.
std::string newest_weights(const std::string& run_or_file);

// Loads newest_weights().
std::unique_ptr<LoadedModel> load_model(const std::string& run_or_file);

}  // namespace normscope
