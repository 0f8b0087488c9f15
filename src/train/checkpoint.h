// Weights in files: checkpoints to resume from, models to load elsewhere.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/hash.h"
#include "data/vocabulary.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "train/optimizer.h"

namespace normscope {

// Where a run is, beyond weights and moments. Everything the next step depends on besides the config is here.
struct TrainState {
  Index step = 0;                               // finished updates
  std::uint64_t trajectory_hash = fnv1a_basis;  // over loss and grad_norm of every step
  std::optional<double> best_val_loss;
  Index best_step = 0;
  Index skipped = 0;  // updates skipped by on_nonfinite: skip
  Index skipped_in_a_row = 0;
  std::vector<double> recent;  // RecentSteps; empty in checkpoints of versions before it was kept
};

// What every file of a run says of itself.
struct FileFacts {
  const RunConfig& config;
  const Vocabulary& vocab;
  std::uint64_t corpus_hash;
};

// The metadata that every file of a run has: format, config, vocabulary, corpus, step.
Metadata file_metadata(const FileFacts& facts, Index step);

// Replaces `path` by weights, moments and state; with Keep::previous the file that was there stays under
// another name.
void save_checkpoint(const std::string& path, const FileFacts& facts, const TrainState& state,
                     const Model<float>& model, const Optimizer<float>& optimizer, Keep keep);

// Reads a checkpoint into a model and an optimiser of the same config. Error: damaged, without
// a checksum, another model, other data.
TrainState load_checkpoint(const SafetensorsFile& file, std::uint64_t corpus_hash, Model<float>& model,
                           Optimizer<float>& optimizer);

// Weights alone, as a PyTorch module's load_state_dict takes them.
void save_model(const std::string& path, const FileFacts& facts, Index step, const Model<float>& model);

// Reads every parameter by name; refuses missing, misshapen and (but for a checkpoint's moments) extra
// tensors.
template <class Real>
void load_weights(const SafetensorsFile& file, const ParameterLayout& layout,
                  ParameterBlock<Real>& parameters);

// A model file as it stands on its own: its config and vocabulary from the metadata, its weights loaded.
struct LoadedModel {
  LoadedModel(RunConfig run_config, Vocabulary vocabulary);
  RunConfig config;
  Vocabulary vocab;
  Index step = 0;
  std::optional<std::uint64_t> corpus_hash;
  Model<float> model;
};
// `run_or_file`: a safetensors file, or a run folder (its final model, else its checkpoint).
std::unique_ptr<LoadedModel> load_model(const std::string& run_or_file);

}  // namespace normscope
