// Checkpoints: what a run is resumed from, and the runs from which others start.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "logs/record.h"
#include "train/optimizer.h"
#include "train/weights.h"

namespace normscope {

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
void load_parent(const Parent& parent, Model<float>& model, Moments<float>& moments, RunRecord& run);

// Whether the parent trained on the text that this run validates on, as far as hashes and paths tell.
bool has_seen_validation(const Parent& parent, const CheckpointMeta& now);

// The figures of a run that a checkpoint keeps; the inverse. Error: one is missing or no number.
Metadata kept_figures(const RunRecord& run);
void set_figures(const std::string& path, const Metadata& figures, RunRecord& run);

// Writes weights, moments, figures and history.
void save_checkpoint(const std::string& path, const CheckpointMeta& meta, const RunRecord& run,
                     const Model<float>& model, const Moments<float>& moments);

// Reads a checkpoint into a model, all its moments and the run's record, to whose history another train.steps
// is added. Errors: the file is damaged; its config differs in keys that may not change on resume (usage);
// its corpus, format or metadata are not those of this run.
void load_checkpoint(const std::string& path, const CheckpointMeta& meta, Model<float>& model,
                     Moments<float>& moments, RunRecord& run);

}  // namespace normscope
