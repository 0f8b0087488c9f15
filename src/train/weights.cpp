#include "train/weights.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "config/dump.h"
#include "config/load.h"
#include "logs/record.h"
#include "logs/run_folder.h"
#include "train/checkpoint.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

constexpr const char* format_version = "1";

// Whether a tensor is not a parameter: moments in a checkpoint; gradients, sites, tokens in an exchange file.
bool is_auxiliary(std::string_view name) {
  for (const char* prefix : {first_moment_prefix, second_moment_prefix, "grad.", "act.", "act_grad."}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "tokens" || name == "targets" || name == "logits" || name == "loss";
}

}  // namespace

// --- tensors ---

void add_tensors(const std::string& prefix, const std::vector<Parameter>& list,
                 const std::vector<float>& block, std::vector<TensorView>& tensors) {
  for (const Parameter& p : list)
    tensors.push_back({prefix + p.name, Dtype::F32, p.shape, block.data() + p.offset});
}

std::vector<TensorView> model_tensors(const Model<float>& model) {
  std::vector<TensorView> tensors;
  add_tensors("", model.layout().list(), model.parameters.all(), tensors);
  add_tensors("", model.layout().buffers(), model.running.values, tensors);
  return tensors;
}

void require_tensors(const SafetensorsFile& file, const std::string& prefix,
                     const std::vector<Parameter>& list) {
  for (const Parameter& p : list) {
    const std::vector<Index>& shape = file.at(prefix + p.name).shape;
    require(shape == p.shape, "safetensors", file.path(), ": ", prefix, p.name, " is ", quote(shape),
            "; the model needs ", quote(p.shape));
  }
}

void load_tensors(const SafetensorsFile& file, const std::string& prefix, const std::vector<Parameter>& list,
                  std::vector<float>& block) {
  for (const Parameter& p : list) file.read_into(prefix + p.name, block.data() + p.offset, p.size);
}

// --- metadata ---

const std::string& metadata_at(const std::string& path, const Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  require(found != metadata.end(), "safetensors", path, ": no metadata '", key,
          "'; not a file that normscope wrote");
  return found->second;
}

RunConfig config_in(const SafetensorsFile& file) {
  const std::string& version = metadata_at(file.path(), file.metadata(), "normscope");
  require(version == format_version, "safetensors", file.path(), ": has the format ", quote(version),
          "; this normscope reads \"", format_version, '"');
  const std::string& config = metadata_at(file.path(), file.metadata(), "config");
  try {
    return load_config_text(config, file.path(), {}, {.need_data = false, .may_have_moved = true}).config;
  } catch (const Error& error) {  // of usage, of several lines; but the user did not write this config
    const std::string lines = error.what();
    fail("safetensors", file.path(), ": damaged config: ", lines.substr(0, lines.find('\n')));
  }
}

std::string text_difference(const std::string& hash, const CheckpointMeta& now) {
  const std::string other = hex(now.corpus.hash);
  if (hash == other) return "";
  return text("another text than ", join(now.config.data.path, " + "), " (hash ", hash, " -> ", other, ')');
}

Metadata file_metadata(const CheckpointMeta& meta, Index step) {
  Metadata metadata = {{"normscope", format_version}, {corpus_key, hex(meta.corpus.hash)}};
  metadata["config"] = dump(meta.config).dump();
  metadata["vocab"] = meta.corpus.vocab.to_json();
  metadata["step"] = std::to_string(step);
  return metadata;
}

Vocabulary vocabulary_in(const Metadata& metadata, const std::string& path) {
  return Vocabulary::from_json(metadata_at(path, metadata, "vocab"), path);
}

// --- the files of a run ---

void save_model(const std::string& path, const CheckpointMeta& meta, Index step, const Model<float>& model) {
  write_safetensors(path, model_tensors(model), file_metadata(meta, step));
}

void require_weights(const SafetensorsFile& file, const ParameterLayout& layout) {
  for (const auto& [name, tensor] : file.tensors()) {
    const bool is_buffer = std::ranges::count(layout.buffers(), name, &Parameter::name) > 0;
    if (!is_buffer && !is_auxiliary(name) && layout.find(name) == no_parameter)
      fail("safetensors", file.path(), ": ", quote(name), " is not a parameter of the model");
  }
  require_tensors(file, "", layout.list());
  require_tensors(file, "", layout.buffers());
}

Index step_of(const SafetensorsFile& file) {
  return file.metadata().contains("step") ? number_at<Index>(file.path(), file.metadata(), "step") : 0;
}

void load_model_weights(const SafetensorsFile& file, Model<float>& model) {
  load_tensors(file, "", model.layout().list(), model.parameters.all());
  load_tensors(file, "", model.layout().buffers(), model.running.values);
}

std::string newest_weights(const std::string& run_or_file) {
  const fs::path folder(run_or_file);
  if (fs::exists(folder) && !fs::is_directory(folder)) return run_or_file;
  std::map<Index, std::string> by_step;
  for (const char* name : {model_file, checkpoint_file, best_file}) {
    const std::string path = (folder / name).string();
    if (fs::exists(path)) by_step.try_emplace(number_at<Index>(path, read_metadata(path), "step"), path);
  }
  if (!by_step.empty()) return by_step.rbegin()->second;
  require_run(run_or_file, config_file);
  if (const auto first = first_nonfinite_in((folder / summary_file).string()))
    refuse("run", run_or_file, ": has no weights: it diverged at step ", first->step, " (", text_of(*first),
           " became non-finite), before its first checkpoint; train it again, e.g. with a lower train.lr");
  refuse("run", run_or_file, ": has no weights: neither ", model_file, " nor ", checkpoint_file, " nor ",
         best_file, "; a run that is stopped by a signal, or reaches its first checkpoint, has some");
}

std::string weights_of(const std::string& run_or_file, std::optional<Index> step) {
  if (!step) return newest_weights(run_or_file);
  std::vector<std::string> kept;
  for (const Index other : kept_steps(run_or_file)) kept.push_back(std::to_string(other));
  if (std::ranges::count(kept, std::to_string(*step)) == 0)
    refuse("run", run_or_file, ": keeps no weights of step ", *step, "; it has those of ",
           kept.empty() ? "none: checkpoint.keep_every=N keeps some" : "steps " + join(kept));
  return (fs::path(run_or_file) / kept_file(*step)).string();
}

std::unique_ptr<LoadedModel> load_model(const std::string& run_or_file, std::optional<Index> step) {
  const SafetensorsFile file(weights_of(run_or_file, step));
  const RunConfig config = config_in(file);
  const Vocabulary vocab = vocabulary_in(file.metadata(), file.path());
  require_weights(file, ParameterLayout(config.model, vocab.size()));  // before allocating that model
  std::unique_ptr<LoadedModel> loaded(
      new LoadedModel{.config = config,
                      .vocab = vocab,
                      .path = file.path(),
                      .step = number_at<Index>(file.path(), file.metadata(), "step"),
                      .corpus_hash = metadata_at(file.path(), file.metadata(), corpus_key),
                      .model = {config.model, vocab.size(), config.train.gemm_mode()}});
  load_model_weights(file, loaded->model);
  loaded->model.branch_progress = config.train.branch_progress(loaded->step);
  return loaded;
}

}  // namespace normscope
