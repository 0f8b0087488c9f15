#include "logs/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/parallel.h"
#include "core/text.h"
#include "io/json.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// In the order of removal, which a kill may interrupt. The checkpoint first: none is left beside removed
// logs. config.json last: with it the folder is still a run, and the removal can be repeated.
const std::vector<std::string> owned_files = {checkpoint_file, summary_file, metrics_file, layers_file,
                                              params_file,     heads_file,   model_file,   best_file,
                                              sample_file,     config_file};

constexpr std::size_t max_named_runs = 4;  // in a message

bool is_run(const fs::path& folder) {
  if (!fs::is_regular_file(folder / config_file)) return false;
  const Json config = Json::parse(read_file((folder / config_file).string()), nullptr, false);
  constexpr const char* sections[] = {"name", "model", "data", "train", "log", "checkpoint"};
  return config.is_object() &&
         std::ranges::all_of(sections, [&](const char* section) { return config.contains(section); });
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

void require_usable(const std::string& path, Existing existing, std::string_view ways) {
  require_no_file(path);
  const auto found = std::ranges::find_if(
      owned_files, [&](const std::string& name) { return fs::exists(fs::path(path) / name); });
  if (found == owned_files.end()) return;
  if (!is_run(path))
    refuse("run", path, " holds ", *found, " but is no run of normscope; nothing was touched; ",
           "choose another folder with --out DIR");
  if (existing == Existing::refuse)
    refuse("run", path, " holds a run already; ", ways, ", or choose another folder with --out DIR");
}

void require_run(const std::string& folder, std::string_view name) {
  if (fs::exists(fs::path(folder) / name)) return;
  std::vector<std::string> runs;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_run(entry.path())) runs.push_back(entry.path().string());
  }
  std::ranges::sort(runs);
  if (runs.empty()) refuse("run", folder, ": is no run; it has no ", name);
  const bool has_many = runs.size() > max_named_runs;
  if (has_many) runs.resize(max_named_runs);
  refuse("run", folder, " is a folder of runs; expected one of them: ", join(runs), has_many ? ", ..." : "");
}

RunFolder::RunFolder(const std::string& path, Existing existing) : path_(path), lock_(created(path)) {
  require_usable(path, existing, "go on with --resume, start again with --overwrite");
  std::error_code error;
  for (const std::string& name : owned_files) {
    remove_leftovers(file(name));
    if (existing == Existing::overwrite && !fs::remove(file(name), error) && error)
      fail("run", "could not remove ", file(name), ": ", error.message());
  }
}

std::string RunFolder::file(std::string_view name) const { return (fs::path(path_) / name).string(); }

bool RunFolder::has(std::string_view name) const { return fs::exists(file(name)); }

LayerLogs::LayerLogs(const RunFolder& folder, std::optional<Index> last_step)
    : layers(folder.file(layers_file),
             "step,layer,site,mean,rms,abs_max,nonfinite,grad_rms,grad_abs_max,grad_norm,grad_nonfinite,"
             "branch_share",
             last_step),
      params(folder.file(params_file),
             "step,layer,param,numel,rms,grad_norm,grad_norm_batch,grad_rms,update_rms", last_step),
      heads(folder.file(heads_file), "step,layer,head,max_logit,entropy,first_share", last_step) {}

void LayerLogs::write(Index step, const std::vector<SiteRow>& sites,
                      const std::vector<ParameterRow>& parameters, const std::vector<HeadRow>& head_rows) {
  parallel_for(3, [&](Index log) {  // their text is a sixth of the cost of logging
    if (log == 0) {
      for (const SiteRow& s : sites)
        layers.row(step, s.place.layer, name_of(s.place.site), s.mean, s.rms, s.abs_max, s.nonfinite,
                   s.grad_rms, s.grad_abs_max, s.grad_norm, s.grad_nonfinite, s.branch_share);
      layers.flush();
    } else if (log == 1) {
      for (const ParameterRow& p : parameters)
        params.row(step, p.layer, p.param, p.numel, p.rms, p.grad_norm, p.grad_norm_batch, p.grad_rms,
                   p.update_rms);
      params.flush();
    } else {
      for (const HeadRow& h : head_rows)
        heads.row(step, h.layer, h.head, h.max_logit, h.entropy, h.first_share);
      heads.flush();
    }
  });
}

CsvWriter open_metrics(const RunFolder& folder, std::optional<Index> last_step) {
  constexpr const char* columns =
      "step,tokens,train_loss,val_loss,lr,grad_norm,clip_factor,step_ms,tokens_per_s";
  return CsvWriter(folder.file(metrics_file), columns, last_step);
}

void write_metrics(CsvWriter& csv, const MetricsRow& row) {
  csv.row(row.step, row.tokens, row.train_loss, row.val_loss, row.lr, row.grad_norm, row.clip_factor,
          row.step_ms, row.tokens_per_s);
  csv.flush();
}

}  // namespace normscope
