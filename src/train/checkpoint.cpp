#include "train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <ranges>

#include "config/dump.h"
#include "core/text.h"
#include "io/json.h"
#include "logs/record.h"
#include "logs/run_folder.h"
#include "train/learning_rate.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

constexpr const char* history_key = "history";

// Error: the checkpoint's config differs in keys that may not change on resume, or its corpus differs.
void require_same_run(const SafetensorsFile& file, const RunConfig& config, const CheckpointMeta& meta) {
  if (const std::string keys = fixed_differences(config, meta.config); !keys.empty()) {
    refuse("resume", file.path(), ": is the checkpoint of another config, which differs in ", keys,
           "; put its own checkpoint back, or start another run with --out DIR");
  }
  std::string other = text_difference(metadata_at(file.path(), file.metadata(), corpus_key), meta);
  if (other.empty() && metadata_at(file.path(), file.metadata(), "vocab") != meta.corpus.vocab.to_json())
    other = "another vocabulary";
  require(other.empty(), "resume", file.path(), ": was trained on ", other,
          "; restore it, name its place with --set data.path=FILE, or start another run with --out DIR");
}

void write_figure(Metadata& metadata, const char* name, std::uint64_t hash) { metadata[name] = hex(hash); }
template <class Number>
void write_figure(Metadata& metadata, const char* name, Number figure) {
  char digits[32];
  const char* end = std::to_chars(digits, digits + sizeof digits, figure).ptr;
  metadata[name] = std::isnan(figure) ? "nan" : std::string_view(digits, end);  // the sign of a NaN means nothing
}
template <class Number>
void write_figure(Metadata& metadata, const char* name, const std::optional<Number>& figure) {
  if (figure) write_figure(metadata, name, *figure);
}

template <class Number>
void read_figure(const std::string& path, const Metadata& metadata, const char* name, Number& figure) {
  constexpr int base = std::is_same_v<Number, std::uint64_t> ? 16 : 10;  // hex digits of a hash
  using Read = std::conditional_t<std::is_same_v<Number, float>, double, Number>;  // parse_number() has no floats
  figure = static_cast<Number>(number_at<Read>(path, metadata, name, base));
}
template <class Number>
void read_figure(const std::string& path, const Metadata& metadata, const char* name,
                 std::optional<Number>& figure) {
  figure.reset();
  if (metadata.contains(name)) figure = number_at<Number>(path, metadata, name);
}

}  // namespace

Metadata kept_figures(const RunRecord& run) {
  Metadata figures;
  const auto write = [&](const char* name, const auto& figure) { write_figure(figures, name, figure); };
  for_each_kept_figure(run, write);
  return figures;
}

void set_figures(const std::string& path, const Metadata& figures, RunRecord& run) {
  const auto read = [&](const char* name, auto& figure) { read_figure(path, figures, name, figure); };
  for_each_kept_figure(run, read);
}

void save_checkpoint(const std::string& path, const CheckpointMeta& meta, const RunRecord& run,
                     const Model<float>& model, const Moments<float>& moments) {
  Metadata metadata = kept_figures(run);
  metadata[history_key] = run.history.dump();
  metadata.merge(file_metadata(meta, run.steps));
  std::vector<TensorView> tensors = model_tensors(model);
  add_tensors(first_moment_prefix, model.layout().list(), moments.first, tensors);
  add_tensors(second_moment_prefix, model.layout().list(), moments.second, tensors);
  write_safetensors(path, tensors, metadata);
}

void load_checkpoint(const std::string& path, const CheckpointMeta& meta, Model<float>& model,
                     Moments<float>& moments, RunRecord& run) {
  const SafetensorsFile file(path);
  const std::vector<Parameter>& list = model.layout().list();
  const RunConfig config = config_in(file);
  require_same_run(file, config, meta);
  require_weights(file, model.layout());
  require_tensors(file, first_moment_prefix, list);
  require_tensors(file, second_moment_prefix, list);
  set_figures(path, file.metadata(), run);
  require(run.steps >= 0 && run.steps <= config.train.steps, "safetensors", path, ": is of step ", run.steps,
          "; expected 0 to ", config.train.steps, ", the run's steps");
  run.history = parse_json(metadata_at(path, file.metadata(), history_key), path + ": " + history_key,
                           "safetensors", Exit::failure);
  // With a constant rate, during a warm-up, before the decay of wsd, no rate so far depends on train.steps.
  const auto is_other_rate = [&](Index step) {
    return learning_rate(config.train, step) != learning_rate(meta.config.train, step);
  };
  if (std::ranges::any_of(std::views::iota(Index{1}, run.steps + 1), is_other_rate))
    run.history["past"].push_back({{"step", run.steps}, {"train.steps", config.train.steps}});
  const Json before = dump(config), now = dump(meta.config);
  if (before["log"] != now["log"] || before["eval"] != now["eval"]) run.history["logged_since"] = run.steps;
  if (config.eval.compared_batches() != meta.config.eval.compared_batches())
    run.best_val_loss.reset();  // of other windows than the evaluations to come
  if (!run.best_val_loss) run.best_step.reset();
  load_model_weights(file, model);
  load_tensors(file, first_moment_prefix, list, moments.first);
  load_tensors(file, second_moment_prefix, list, moments.second);
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

void load_parent(const Parent& parent, Model<float>& model, Moments<float>& moments, RunRecord& run) {
  const SafetensorsFile& file = *parent.file;
  load_model_weights(file, model);
  if (parent.with_moments) {
    load_tensors(file, first_moment_prefix, model.layout().list(), moments.first);
    load_tensors(file, second_moment_prefix, model.layout().list(), moments.second);
    RunRecord before;
    set_figures(file.path(), file.metadata(), before);
    run.updates = before.updates;
    run.earlier_batches = before.earlier_batches.value_or(0) + before.steps;
  }
  std::uint64_t hash = fnv1a_basis;
  for (const Parameter& p : model.layout().list())
    hash = fnv1a(model.parameters.all().data() + p.offset, p.size * sizeof(float), hash);
  run.history["parent"] = {{"folder", fs::weakly_canonical(file.path()).parent_path().string()},
                           {"step", step_of(file)},
                           {"hash", hex(hash)},
                           {"moments", parent.with_moments}};
}

bool has_seen_validation(const Parent& parent, const CheckpointMeta& now) {
  const DataConfig before = config_in(*parent.file).data, &data = now.config.data;
  if (now.corpus.val.empty()) return false;
  if (metadata_at(parent.file->path(), parent.file->metadata(), corpus_key) == hex(now.corpus.hash))
    return data.val_path.empty() && data.val_fraction > before.val_fraction;
  const fs::path validation = fs::weakly_canonical(data.val_path.empty() ? data.path.back() : data.val_path);
  return std::ranges::any_of(
      before.path, [&](const std::string& path) { return fs::weakly_canonical(path) == validation; });
}

}  // namespace normscope
