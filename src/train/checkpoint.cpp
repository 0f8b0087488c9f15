#include "train/checkpoint.h"

#include <charconv>
#include <filesystem>

#include "config/dump.h"
#include "config/load.h"
#include "io/utf8.h"
#include "train/environment.h"
#include "train/run_folder.h"

namespace normscope {
namespace {

constexpr const char* format_version = "1";
constexpr const char* first_moment_prefix = "optim.m.";
constexpr const char* second_moment_prefix = "optim.v.";
constexpr const char* recent_name = "recent";  // numbers of the last steps, for the story of a divergence

void add_tensors(const std::string& prefix, const ParameterLayout& layout, const ParameterBlock<float>& block,
                 std::vector<TensorView>& tensors) {
  for (const Parameter& p : layout.list())
    tensors.push_back({prefix + p.name, Dtype::F32, p.shape, block.at(p)});
}

// Reads every tensor of the layout, named with the prefix.
template <class Real>
void read_tensors(const SafetensorsFile& file, const std::string& prefix, const ParameterLayout& layout,
                  ParameterBlock<Real>& block) {
  for (const Parameter& p : layout.list()) {
    if (!p.trainable && !prefix.empty()) continue;
    const TensorInfo* tensor = file.find(prefix + p.name);
    if (tensor == nullptr) {
      fail("safetensors", file.path(), ": no tensor ", prefix, p.name, ", which the model needs");
    }
    if (tensor->shape != p.shape) {
      fail("safetensors", file.path(), ": ", tensor->name, " is ", shape_text(tensor->shape),
           "; the model needs ", shape_text(p.shape));
    }
    file.read_into(tensor->name, block.at(p), p.size);
  }
}

template <class Number>
Number number_of(const SafetensorsFile& file, const char* key, int base = 10) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end())
    fail("safetensors", file.path(), ": no metadata '", key, "'; not a checkpoint");
  const std::string& text = found->second;
  Number value{};
  std::from_chars_result read;
  if constexpr (std::is_floating_point_v<Number>) {
    read = std::from_chars(text.data(), text.data() + text.size(), value);
  } else {
    read = std::from_chars(text.data(), text.data() + text.size(), value, base);
  }
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
    fail("safetensors", file.path(), ": metadata '", key, "' is '", text, "'; expected a number");
  }
  return value;
}

const std::string& metadata_at(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    fail("safetensors", file.path(), ": no metadata '", key, "'; not a file that normscope wrote");
  }
  return found->second;
}

// What a file may hold besides parameters: moments of a checkpoint; gradients, sites, tokens of an exchange
// file.
bool beside_the_weights(std::string_view name) {
  for (const char* prefix : {first_moment_prefix, second_moment_prefix, "grad.", "act.", "act_grad."}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == recent_name || name == "tokens" || name == "targets" || name == "logits" || name == "loss";
}

}  // namespace

Metadata file_metadata(const FileFacts& facts, Index step) {
  return {{"normscope", format_version},
          {"config", dump(facts.config).dump()},
          {"vocab", facts.vocab.to_json()},
          {"corpus", hex(facts.corpus_hash)},
          {"step", std::to_string(step)}};
}

void save_checkpoint(const std::string& path, const FileFacts& facts, const TrainState& state,
                     const Model<float>& model, const Optimizer<float>& optimizer, Keep keep) {
  Metadata metadata = file_metadata(facts, state.step);
  metadata["trajectory_hash"] = hex(state.trajectory_hash);
  metadata["best_step"] = std::to_string(state.best_step);
  metadata["skipped"] = std::to_string(state.skipped);
  metadata["skipped_in_a_row"] = std::to_string(state.skipped_in_a_row);
  if (state.best_val_loss) {
    char digits[32];
    metadata["best_val_loss"] = {digits,
                                 std::to_chars(digits, digits + sizeof digits, *state.best_val_loss).ptr};
  }
  std::vector<TensorView> tensors;
  add_tensors("", model.layout(), model.parameters, tensors);
  add_tensors(first_moment_prefix, model.layout(), optimizer.first_moment, tensors);
  add_tensors(second_moment_prefix, model.layout(), optimizer.second_moment, tensors);
  tensors.push_back({recent_name, Dtype::F64, {std::ssize(state.recent)}, state.recent.data()});
  write_safetensors(path, tensors, metadata, keep);
}

TrainState load_checkpoint(const SafetensorsFile& file, std::uint64_t corpus_hash, Model<float>& model,
                           Optimizer<float>& optimizer) {
  if (!file.has_checksum())
    fail("safetensors", file.path(), ": has no checksum; expected one in a checkpoint");
  if (const std::uint64_t written = number_of<std::uint64_t>(file, "corpus", 16); written != corpus_hash) {
    fail("resume", file.path(), ": was trained on a corpus with hash ", hex(written), ", the corpus now has ",
         hex(corpus_hash), "; restore the text, or start again with --overwrite");
  }
  read_tensors(file, "", model.layout(), model.parameters);
  read_tensors(file, first_moment_prefix, model.layout(), optimizer.first_moment);
  read_tensors(file, second_moment_prefix, model.layout(), optimizer.second_moment);
  TrainState state;
  state.step = number_of<Index>(file, "step");
  state.trajectory_hash = number_of<std::uint64_t>(file, "trajectory_hash", 16);
  if (file.metadata().contains("best_val_loss"))
    state.best_val_loss = number_of<double>(file, "best_val_loss");
  state.best_step = number_of<Index>(file, "best_step");
  state.skipped = number_of<Index>(file, "skipped");
  state.skipped_in_a_row = number_of<Index>(file, "skipped_in_a_row");
  if (const TensorInfo* recent = file.find(recent_name)) {
    state.recent.resize(static_cast<std::size_t>(recent->count));
    file.read_into(recent_name, state.recent.data(), recent->count);
  }
  return state;
}

void save_model(const std::string& path, const FileFacts& facts, Index step, const Model<float>& model) {
  std::vector<TensorView> tensors;
  add_tensors("", model.layout(), model.parameters, tensors);
  write_safetensors(path, tensors, file_metadata(facts, step));
}

template <class Real>
void load_weights(const SafetensorsFile& file, const ParameterLayout& layout,
                  ParameterBlock<Real>& parameters) {
  for (const TensorInfo& tensor : file.tensors()) {
    if (beside_the_weights(tensor.name) || layout.find(tensor.name) != no_parameter) continue;
    fail("safetensors", file.path(), ": ", printable(tensor.name), " is not a parameter of the model");
  }
  read_tensors(file, "", layout, parameters);
}

LoadedModel::LoadedModel(RunConfig run_config, Vocabulary vocabulary)
    : config(std::move(run_config)),
      vocab(std::move(vocabulary)),
      model(config.model, vocab.size(), gemm_provider(config.train)) {}

std::unique_ptr<LoadedModel> load_model(const std::string& run_or_file) {
  std::string path = run_or_file;
  if (std::filesystem::is_directory(path)) {
    for (const char* name : {model_file, checkpoint_file}) {
      path = (std::filesystem::path(run_or_file) / name).string();
      if (std::filesystem::exists(path)) break;
    }
  }
  const SafetensorsFile file(path);
  RunConfig config = load_config_text(metadata_at(file, "config"), path, {}, {.need_data = false}).config;
  Vocabulary vocab = Vocabulary::from_json(metadata_at(file, "vocab"), path);
  auto loaded = std::make_unique<LoadedModel>(std::move(config), std::move(vocab));
  loaded->step = number_of<Index>(file, "step");
  if (file.metadata().contains("corpus")) loaded->corpus_hash = number_of<std::uint64_t>(file, "corpus", 16);
  load_weights(file, loaded->model.layout(), loaded->model.parameters);
  return loaded;
}

template void load_weights(const SafetensorsFile&, const ParameterLayout&, ParameterBlock<float>&);
template void load_weights(const SafetensorsFile&, const ParameterLayout&, ParameterBlock<double>&);

}  // namespace normscope
