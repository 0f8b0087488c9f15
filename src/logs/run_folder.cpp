#include "logs/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "core/text.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// The files of a run in the order of their removal, which a kill may interrupt. The checkpoint comes first,
// so that none outlives its logs, and config.json last: with it the folder is still a run, and the removal
// can be repeated.
const std::vector<std::string> owned_files = {checkpoint_file, summary_file, metrics_file, layers_file,
                                              params_file,     heads_file,   model_file,   best_file,
                                              sample_file,     config_file};

// These, with the kept weights of a folder before its config.
std::vector<std::string> owned_in(const std::string& folder) {
  std::vector<std::string> names = owned_files;
  for (const Index step : kept_steps(folder)) names.insert(names.end() - 1, kept_file(step));
  return names;
}

bool has_own_checkpoint(const fs::path& folder) try {
  return read_metadata((folder / checkpoint_file).string()).contains("normscope");
} catch (const Error&) {  // missing, or of another program
  return false;
}

// Whether the folder is that of a run. One that started --from another and was killed at once may have no
// more than its first checkpoint.
bool is_run(const fs::path& folder) {
  if (!fs::exists(folder / config_file)) return has_own_checkpoint(folder);
  if (!fs::is_regular_file(folder / config_file)) return false;
  const Json config = Json::parse(read_file((folder / config_file).string()), nullptr, false);
  constexpr const char* sections[] = {"name", "model", "data", "train", "log", "checkpoint"};
  return config.is_object() &&
         std::ranges::all_of(sections, [&](const char* section) { return config.contains(section); });
}

// The input that is this file, under whatever name or link; nullptr if there is none.
const std::string* input_at(const fs::path& file, const InputFiles& inputs) {
  std::error_code ignored;  // a file that does not exist is none
  const auto input = std::ranges::find_if(
      inputs, [&](const std::string& one) { return fs::equivalent(file, one, ignored); });
  return input == inputs.end() ? nullptr : &*input;
}

// Error unless the path is that of a folder, or of nothing yet.
void require_no_file(const std::string& path) {
  std::error_code ignored;  // what cannot be looked up cannot be created either
  if (path.empty()) refuse("run", "the folder's name is empty; name one with --out DIR");
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_directory(status))
    refuse("run", path, " is a file; expected a folder, or none yet; choose another with --out DIR");
}

const std::string& created(const std::string& path) {
  std::error_code error;
  require_no_file(path);
  fs::create_directories(path, error);
  if (error) fail("run", "could not create ", path, ": ", error.message());
  return path;
}

}  // namespace

std::string kept_file(Index step) { return text(kept_folder, "/step_", step, ".safetensors"); }

std::vector<Index> kept_steps(const std::string& folder) {
  std::vector<Index> steps;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(folder) / kept_folder, ignored)) {
    const std::string stem = entry.path().stem().string();
    const auto step = parse_number<Index>(stem.substr(std::min<std::size_t>(stem.find('_') + 1, stem.size())));
    if (step && entry.path() == fs::path(folder) / kept_file(*step)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

void require_usable(const std::string& path, Existing existing, const InputFiles& inputs) {
  require_no_file(path);
  const std::vector<std::string> owned = owned_in(path);
  const auto found =
      std::ranges::find_if(owned, [&](const std::string& name) { return fs::exists(fs::path(path) / name); });
  if (found == owned.end()) return;
  if (!is_run(path))
    refuse("run", path, " holds ", *found, " but is no run of normscope; nothing was touched; ",
           "choose another folder with --out DIR");
  for (const std::string& name : owned) {
    if (existing == Existing::resume && name == config_file) continue;
    if (const std::string* input = input_at(fs::path(path) / name, inputs))
      refuse("run", path, ": its ", name, " would be replaced, but is an input, ", *input,
             "; choose another folder with --out DIR");
  }
  if (existing == Existing::refuse)
    refuse("run", path,
           " holds a run already; start again with --overwrite, or with train go on with --resume ",
           "(without --from), or choose another folder with --out DIR");
}

void require_output(const std::string& path, const InputFiles& inputs, bool overwrite) {
  constexpr const char* advice = "; name another file";
  const fs::path file = behind_links(fs::absolute(path)), folder = file.parent_path();
  if (const std::string* input = input_at(file, inputs))
    refuse("file", path, ": would be replaced, but is an input, ", *input, advice);
  const bool is_of_run = is_run(folder) || folder.filename().string().starts_with(seed_prefix);
  const bool is_kept = folder.filename() == kept_folder && is_run(folder.parent_path());
  if (is_kept || (is_of_run && std::ranges::count(owned_files, file.filename().string()) > 0))
    refuse("file", path, ": is the name of a run's own file", advice);
  if (!overwrite && fs::is_regular_file(file))
    refuse("file", path, ": exists; replace it with --overwrite, or name another file");
}

void require_run(const std::string& folder, std::string_view name) {
  const fs::path path(folder);
  if (fs::exists(path / name)) return;
  if (fs::exists(path))
    refuse("run", folder, ": is no run; it has no ", name, "; name the folder of one run");
  std::vector<std::string> beside;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path.parent_path() / ".", ignored)) {
    if (entry.is_directory(ignored)) beside.push_back(entry.path().filename().string());
  }
  const std::string meant = nearest(path.filename().string(), beside);
  refuse("run", folder, ": there is no run or file of this name",
         meant.empty() ? "" : "; did you mean " + path.parent_path().append(meant).string() + "?");
}

RunFolder::RunFolder(const std::string& path, Existing existing, const InputFiles& inputs)
    : path_(path), lock_(created(path)) {
  require_usable(path, existing, inputs);
  std::error_code error;
  for (const std::string& name : owned_in(path_)) {
    remove_leftovers(file(name));
    if (existing == Existing::overwrite && !fs::remove(file(name), error) && error)
      fail("run", "could not remove ", file(name), ": ", error.message());
  }
  if (existing == Existing::overwrite) fs::remove(file(kept_folder), error);  // unless other files lie in it
}

void RunFolder::remove_kept(Index last_step) const {
  for (const Index step : kept_steps(path_)) {
    if (step > last_step) fs::remove(file(kept_file(step)));
  }
}

std::string RunFolder::file(std::string_view name) const { return (fs::path(path_) / name).string(); }

bool RunFolder::has(std::string_view name) const { return fs::exists(file(name)); }

// --- logs: the columns of each, behind the step that all of them begin with ---

namespace {

void for_each_cell(const MetricsRow& row, const auto& use) {
  use("tokens", row.tokens);
  use("seconds", row.seconds);
  use("train_loss", row.train_loss);
  use("val_loss", row.val_loss);
  use("lr", row.lr);
  use("grad_norm", row.grad_norm);
  use("clip_factor", row.clip_factor);
  use("step_ms", row.step_ms);
  use("tokens_per_s", row.tokens_per_s);
  use("train_loss_max", row.train_loss_max);
  use("grad_norm_max", row.grad_norm_max);
}

void for_each_cell(const SiteRow& row, const auto& use) {
  use("layer", row.id.layer);
  use("site", name_of(row.id.site));
  use("mean", row.mean);
  use("rms", row.rms);
  use("abs_max", row.abs_max);
  use("nonfinite", row.nonfinite);
  use("grad_rms", row.grad_rms);
  use("grad_abs_max", row.grad_abs_max);
  use("grad_norm", row.grad_norm);
  use("grad_nonfinite", row.grad_nonfinite);
  use("branch_share", row.branch_share);
  use("token_cosine", row.token_cosine);
}

void for_each_cell(const ParameterRow& row, const auto& use) {
  use("layer", row.layer);
  use("param", row.param);
  use("numel", row.numel);
  use("rms", row.rms);
  use("grad_norm", row.grad_norm);
  use("grad_norm_batch", row.grad_norm_batch);
  use("grad_rms", row.grad_rms);
  use("update_rms", row.update_rms);
  use("value", row.value);
}

void for_each_cell(const HeadRow& row, const auto& use) {
  use("layer", row.layer);
  use("head", row.head);
  use("max_logit", row.max_logit);
  use("entropy", row.entropy);
  use("first_share", row.first_share);
}

template <class Row>
CsvWriter open_log(const RunFolder& folder, const char* file) {
  std::string header = "step";
  for_each_cell(Row{}, [&](const char* column, const auto&) { header.append(",").append(column); });
  return CsvWriter(folder.file(file), header);
}

template <class Row>
void write_rows(CsvWriter& csv, Index step, std::span<const Row> rows) {
  for (const Row& row : rows) {
    csv.cell(step);
    for_each_cell(row, [&](const char*, const auto& cell) { csv.cell(cell); });
    csv.end_row();
  }
  csv.flush();
}

}  // namespace

LayerLogs::LayerLogs(const RunFolder& folder)
    : layers(open_log<SiteRow>(folder, layers_file)),
      params(open_log<ParameterRow>(folder, params_file)),
      heads(open_log<HeadRow>(folder, heads_file)) {}

void LayerLogs::write(Index step, const std::vector<SiteRow>& sites,
                      const std::vector<ParameterRow>& parameters, const std::vector<HeadRow>& head_rows) {
  write_rows<SiteRow>(layers, step, sites);
  write_rows<ParameterRow>(params, step, parameters);
  write_rows<HeadRow>(heads, step, head_rows);
}

CsvWriter open_metrics(const RunFolder& folder) { return open_log<MetricsRow>(folder, metrics_file); }

void write_metrics(CsvWriter& csv, const MetricsRow& row) {
  write_rows<MetricsRow>(csv, row.step, {&row, 1});
}

double logged_seconds(const RunFolder& folder, Index steps) {
  const std::vector<std::string> lines = split(read_file(folder.file(metrics_file), "csv"), '\n');
  if (lines.size() < 3) return 0;  // a header, and the empty text after its newline
  const std::vector<std::string> columns = split(lines[0]), last_row = split(lines[lines.size() - 2]);
  const auto number_in = [&](const char* column) {
    const std::size_t index = std::ranges::find(columns, column) - columns.begin();
    return index < last_row.size() ? parse_number<double>(last_row[index]) : std::nullopt;
  };
  return number_in("seconds").value_or(0) * static_cast<double>(steps) / number_in("step").value_or(1);
}

}  // namespace normscope
