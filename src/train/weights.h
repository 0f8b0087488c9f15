// Files of weights: their tensors and metadata, models for other programs, and the newest weights of a run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/text.h"
#include "data/corpus.h"
#include "io/safetensors.h"
#include "model/model.h"

namespace normscope {

constexpr const char* first_moment_prefix = "optim.m.";  // before the names of a checkpoint's moments
constexpr const char* second_moment_prefix = "optim.v.";
constexpr const char* corpus_key = "corpus";  // of the hash of the run's texts, in metadata

// The run whose files are written or read.
struct CheckpointMeta {
  const RunConfig& config;
  const Corpus& corpus;
};

// --- tensors: `block` is laid out like a ParameterBuffer ---

void add_tensors(const std::string& prefix, const std::vector<Parameter>& list,
                 const std::vector<float>& block, std::vector<TensorView>& tensors);
std::vector<TensorView> model_tensors(const Model<float>& model);
// Error: a tensor of the list, with the prefix before its name, is missing or has another shape.
void require_tensors(const SafetensorsFile& file, const std::string& prefix,
                     const std::vector<Parameter>& list);
void load_tensors(const SafetensorsFile& file, const std::string& prefix, const std::vector<Parameter>& list,
                  std::vector<float>& block);

// --- metadata ---

// The metadata of every file of a run: format, config, vocabulary, corpus, step.
Metadata file_metadata(const CheckpointMeta& meta, Index step);

// An entry of the metadata of the file `path`. Error: there is none.
const std::string& metadata_at(const std::string& path, const Metadata& metadata, const std::string& key);

// An entry as a number, of integers to `base`. Error: missing, or no number.
template <class Number>
Number number_at(const std::string& path, const Metadata& metadata, const std::string& key, int base = 10) {
  const std::string& digits = metadata_at(path, metadata, key);
  const std::optional<Number> value = parse_number<Number>(digits, base);
  require(value.has_value(), "safetensors", path, ": metadata '", key, "' is ", quote(digits),
          "; expected a number");
  return *value;
}

// Error: another format, or a damaged config.
RunConfig config_in(const SafetensorsFile& file);

// The vocabulary of a file of weights called `path`. Error: it has none, as another program's file.
Vocabulary vocabulary_in(const Metadata& metadata, const std::string& path);

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

// The file of a run's kept weights of a step, or without a step newest_weights(). Usage Error: there are none
// of that step.
std::string weights_of(const std::string& run_or_file, std::optional<Index> step);

// Loads weights_of().
std::unique_ptr<LoadedModel> load_model(const std::string& run_or_file, std::optional<Index> step = {});

}  // namespace normscope
