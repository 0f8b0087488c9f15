#include "train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "config/dump.h"
#include "config/load.h"
#include "core/text.h"
#include "io/json.h"
#include "logs/record.h"
#include "logs/run_folder.h"
#include "train/learning_rate.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

constexpr const char* format_version = "1";
constexpr const char* first_moment_prefix = "optim.m.";
constexpr const char* second_moment_prefix = "optim.v.";
constexpr const char* corpus_key = "corpus";
constexpr const char* history_key = "history";

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

// Error: a tensor of the list, with the prefix before its name, is missing or has another shape.
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

// Whether a tensor is not a parameter: moments in a checkpoint; gradients, sites, tokens in an exchange file.
bool is_auxiliary(std::string_view name) {
  for (const char* prefix : {first_moment_prefix, second_moment_prefix, "grad.", "act.", "act_grad."}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "tokens" || name == "targets" || name == "logits" || name == "loss";
}

// --- metadata ---

const std::string& metadata_at(const std::string& path, const Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  require(found != metadata.end(), "safetensors", path, ": no metadata '", key,
          "'; not a file that normscope wrote");
  return found->second;
}
const std::string& metadata_at(const SafetensorsFile& file, const std::string& key) {
  return metadata_at(file.path(), file.metadata(), key);
}

// Metadata `key` as a number. Error: missing, or no number.
template <class Number, class... Base>
Number number_at(const std::string& path, const Metadata& metadata, const std::string& key, Base... base) {
  const std::string& digits = metadata_at(path, metadata, key);
  const std::optional<Number> value = parse_number<Number>(digits, base...);
  require(value.has_value(), "safetensors", path, ": metadata '", key, "' is ", quote(digits),
          "; expected a number");
  return *value;
}
template <class Number, class... Base>
Number number_at(const SafetensorsFile& file, const std::string& key, Base... base) {
  return number_at<Number>(file.path(), file.metadata(), key, base...);
}

RunConfig config_in(const SafetensorsFile& file) {
  const std::string& version = metadata_at(file, "normscope");
  require(version == format_version, "safetensors", file.path(), ": has the format ", quote(version),
          "; this normscope reads \"", format_version, '"');
  const std::string& config = metadata_at(file, "config");
  try {
    return load_config_text(config, file.path(), {}, {.need_data = false, .may_have_moved = true}).config;
  } catch (const Error& error) {  // of usage, of several lines; but the user did not write this config
    const std::string lines = error.what();
    fail("safetensors", file.path(), ": damaged config: ", lines.substr(0, lines.find('\n')));
  }
}

// Error: the checkpoint's config differs in keys that may not change on resume, or its corpus differs.
void require_same_run(const SafetensorsFile& file, const RunConfig& config, const CheckpointMeta& meta) {
  if (const std::string keys = fixed_differences(config, meta.config); !keys.empty()) {
    refuse("resume", file.path(), ": is the checkpoint of another config, which differs in ", keys,
           "; put its own checkpoint back, or start another run with --out DIR");
  }
  std::string other = text_difference(metadata_at(file, corpus_key), meta);
  if (other.empty() && metadata_at(file, "vocab") != meta.corpus.vocab.to_json())
    other = "another vocabulary";
  require(other.empty(), "resume", file.path(), ": was trained on ", other,
          "; restore it, name its place with --set data.path=FILE, or start another run with --out DIR");
}

Metadata state_metadata(const TrainState& state) {
  Metadata metadata = {{"trajectory_hash", hex(state.trajectory_hash)},
                       {"best_step", std::to_string(state.best_step)},
                       {"updates", std::to_string(state.updates)},
                       {"skipped", std::to_string(state.skipped)},
                       {"skipped_in_a_row", std::to_string(state.consecutive_skips)}};
  const auto write = [&](const char* key, double value) {
    char digits[32];
    metadata[key] = {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
  };
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (value && std::isfinite(*value)) write(key, *value);
  };
  write("train_loss_max", state.train_loss_max);
  write("grad_norm_max", state.grad_norm_max);
  if (state.earlier_batches > 0) metadata["earlier_batches"] = std::to_string(state.earlier_batches);
  add("unlogged_grad_norm", state.unlogged_grad_norm);
  add("best_val_loss", state.best_val_loss);
  add("final_train_loss", state.final_train_loss);
  add("final_val_loss", state.final_val_loss);
  add("grad_first_last", state.grad_first_last);
  add("growth", state.growth);
  add("branch_share", state.branch_share);
  return metadata;
}

Index earlier_batches_in(const SafetensorsFile& file) {
  return file.metadata().contains("earlier_batches") ? number_at<Index>(file, "earlier_batches") : 0;
}

TrainState state_in(const SafetensorsFile& file, Index steps) {
  const auto optional_at = [&](const char* key) {
    return file.metadata().contains(key) ? std::optional(number_at<double>(file, key)) : std::nullopt;
  };
  const TrainState state = {.step = number_at<Index>(file, "step"),
                            .trajectory_hash = number_at<std::uint64_t>(file, "trajectory_hash", 16),
                            .best_val_loss = optional_at("best_val_loss"),
                            .best_step = number_at<Index>(file, "best_step"),
                            .updates = number_at<Index>(file, "updates"),
                            .skipped = number_at<Index>(file, "skipped"),
                            .consecutive_skips = number_at<Index>(file, "skipped_in_a_row"),
                            .earlier_batches = earlier_batches_in(file),
                            .unlogged_grad_norm = optional_at("unlogged_grad_norm"),
                            .final_train_loss = optional_at("final_train_loss"),
                            .final_val_loss = optional_at("final_val_loss"),
                            .grad_first_last = optional_at("grad_first_last"),
                            .growth = optional_at("growth"),
                            .branch_share = optional_at("branch_share"),
                            .train_loss_max = static_cast<float>(number_at<double>(file, "train_loss_max")),
                            .grad_norm_max = static_cast<float>(number_at<double>(file, "grad_norm_max"))};
  require(state.step >= 0 && state.step <= steps, "safetensors", file.path(), ": is of step ", state.step,
          "; expected 0 to ", steps, ", the run's steps");
  return state;
}

Json history_in(const SafetensorsFile& file) {
  const auto entry = file.metadata().find(history_key);
  if (entry == file.metadata().end()) return Json::object();
  return parse_json(entry->second, file.path() + ": " + history_key, "safetensors", Exit::failure);
}

// Adds the earlier train.steps to the run's past, unless the rates of its first `step` steps depend on it in
// no way: with a constant rate, during a warm-up, before the decay of wsd.
void add_past(const TrainConfig& before, const TrainConfig& now, Index step, Json& history) {
  for (Index s = 1; s <= step; ++s) {
    if (learning_rate(before, s) == learning_rate(now, s)) continue;
    history["past"].push_back({{"step", step}, {"train.steps", before.steps}});
    return;
  }
}

// --- the files of a run ---

[[noreturn]] void refuse_without_weights(const std::string& folder) {
  require_run(folder, config_file);
  const std::string summary = (fs::path(folder) / summary_file).string();
  if (const auto first = first_nonfinite_in(summary))
    refuse("run", folder, ": has no weights: it diverged at step ", first->step, " (", text_of(*first),
           " became non-finite), before its first checkpoint; train it again, e.g. with a lower train.lr");
  refuse("run", folder, ": has no weights: neither ", model_file, " nor ", checkpoint_file, " nor ",
         best_file, "; a run that is stopped by a signal, or reaches its first checkpoint, has some");
}

}  // namespace

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

void save_checkpoint(const std::string& path, const CheckpointMeta& meta, const TrainState& state,
                     const Json& history, const Model<float>& model, const Moments<float>& moments) {
  Metadata metadata = state_metadata(state);
  if (!history.empty()) metadata[history_key] = history.dump();
  metadata.merge(file_metadata(meta, state.step));
  std::vector<TensorView> tensors = model_tensors(model);
  add_tensors(first_moment_prefix, model.layout().list(), moments.first, tensors);
  add_tensors(second_moment_prefix, model.layout().list(), moments.second, tensors);
  write_safetensors(path, tensors, metadata);
}

TrainState load_checkpoint(const std::string& path, const CheckpointMeta& meta, Model<float>& model,
                           Moments<float>& moments, Json& history) {
  const SafetensorsFile file(path);
  const std::vector<Parameter>& list = model.layout().list();
  const RunConfig config = config_in(file);
  require_same_run(file, config, meta);
  require_weights(file, model.layout());
  require_tensors(file, first_moment_prefix, list);
  require_tensors(file, second_moment_prefix, list);
  TrainState state = state_in(file, config.train.steps);
  history = history_in(file);
  add_past(config.train, meta.config.train, state.step, history);
  const Json before = dump(config), now = dump(meta.config);
  if (before["log"] != now["log"] || before["eval"] != now["eval"]) history["logged_since"] = state.step;
  if (config.eval.compared_batches() != meta.config.eval.compared_batches())
    state.best_val_loss.reset();  // of other windows than the evaluations to come
  load_model_weights(file, model);
  load_tensors(file, first_moment_prefix, list, moments.first);
  load_tensors(file, second_moment_prefix, list, moments.second);
  return state;
}

void require_parent(const Parent& parent, const RunConfig& config, const ParameterLayout& layout) {
  const SafetensorsFile& file = *parent.file;
  require_weights(file, layout);
  if (!parent.with_moments) return;
  require_tensors(file, first_moment_prefix, layout.list());
  require_tensors(file, second_moment_prefix, layout.list());
  const OptimizerKind optimizer = config_in(file).train.optimizer;
  if (optimizer != config.train.optimizer)
    refuse("train", "--moments: those of ", file.path(), " are ", name_of(optimizer),
           "'s, and the config has ", name_of(config.train.optimizer),
           "; set train.optimizer=", name_of(optimizer), ", or leave out --moments");
}

Json load_parent(const Parent& parent, Model<float>& model, Moments<float>& moments, TrainState& state) {
  const SafetensorsFile& file = *parent.file;
  load_model_weights(file, model);
  if (parent.with_moments) {
    load_tensors(file, first_moment_prefix, model.layout().list(), moments.first);
    load_tensors(file, second_moment_prefix, model.layout().list(), moments.second);
    state.updates = number_at<Index>(file, "updates");
    state.earlier_batches = earlier_batches_in(file) + step_of(file);
  }
  std::uint64_t hash = fnv1a_basis;
  for (const Parameter& p : model.layout().list())
    hash = fnv1a(model.parameters.all().data() + p.offset, p.size * sizeof(float), hash);
  return {{"folder", fs::weakly_canonical(file.path()).parent_path().string()},
          {"step", step_of(file)},
          {"hash", hex(hash)},
          {"moments", parent.with_moments}};
}

bool has_seen_validation(const Parent& parent, const CheckpointMeta& now) {
  const DataConfig before = config_in(*parent.file).data, &data = now.config.data;
  if (now.corpus.val.empty()) return false;
  if (metadata_at(*parent.file, corpus_key) == hex(now.corpus.hash))
    return data.val_path.empty() && data.val_fraction > before.val_fraction;
  const fs::path validation = fs::weakly_canonical(data.val_path.empty() ? data.path.back() : data.val_path);
  return std::ranges::any_of(
      before.path, [&](const std::string& path) { return fs::weakly_canonical(path) == validation; });
}

Vocabulary vocabulary_in(const Metadata& metadata, const std::string& path) {
  return Vocabulary::from_json(metadata_at(path, metadata, "vocab"), path);
}

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
  return file.metadata().contains("step") ? number_at<Index>(file, "step") : 0;
}

void load_model_weights(const SafetensorsFile& file, Model<float>& model) {
  load_tensors(file, "", model.layout().list(), model.parameters.all());
  load_tensors(file, "", model.layout().buffers(), model.running.values);
}

std::string newest_weights(const std::string& run_or_file) {
  const fs::path folder(run_or_file);
  if (!fs::exists(folder)) refuse_missing(run_or_file);
  if (!fs::is_directory(folder)) return run_or_file;
  std::map<Index, std::string> by_step;
  for (const char* name : {model_file, checkpoint_file, best_file}) {
    const std::string path = (folder / name).string();
    if (fs::exists(path)) by_step.try_emplace(number_at<Index>(path, read_metadata(path), "step"), path);
  }
  if (by_step.empty()) refuse_without_weights(run_or_file);
  return by_step.rbegin()->second;
}

std::unique_ptr<LoadedModel> load_model(const std::string& run_or_file) {
  const SafetensorsFile file(newest_weights(run_or_file));
  const RunConfig config = config_in(file);
  const Vocabulary vocab = Vocabulary::from_json(metadata_at(file, "vocab"), file.path());
  require_weights(file, ParameterLayout(config.model, vocab.size()));  // before allocating that model
  std::unique_ptr<LoadedModel> loaded(
      new LoadedModel{.config = config,
                      .vocab = vocab,
                      .path = file.path(),
                      .step = number_at<Index>(file, "step"),
                      .corpus_hash = metadata_at(file, corpus_key),
                      .model = {config.model, vocab.size(), config.train.gemm_mode()}});
  load_model_weights(file, loaded->model);
  loaded->model.branch_progress = config.train.branch_progress(loaded->step);
  return loaded;
}

}  // namespace normscope
