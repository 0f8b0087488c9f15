#include "train/run_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "config/load.h"
#include "io/utf8.h"
#include "model/placement.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// In the order of removal, which a kill may cut short. Checkpoints first: none is left beside logs that are
// gone. config.json last: while it is there the folder is a run, and the removal can be repeated.
const std::string owned_files[] = {checkpoint_file, previous_checkpoint_file,
                                   summary_file,    metrics_file,
                                   layers_file,     params_file,
                                   model_file,      best_file,
                                   sample_file,     previous_path(best_file),
                                   config_file};

// Why the folder is not a run's, and its files are not ours; empty: it is one.
std::string not_a_run(const std::string& path) {
  const fs::path config = fs::path(path) / config_file;
  if (!fs::exists(config)) return text("there is no ", config_file);
  try {
    load_config(config, {}, of_a_run);
    return "";
  } catch (const Error& error) {
    if (error.exit != Exit::usage) throw;  // it could not be read
    const std::string lines = error.what();
    return lines.substr(0, lines.find('\n'));
  }
}

// The path of a folder, or of nothing yet.
void require_no_file(const std::string& path) {
  std::error_code error;
  if (path.empty()) refuse("run", "the folder's name is empty; name one with --out DIR");
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    fail("run", escape_controls(path), " cannot be looked up: ", error.message());
  if (fs::exists(status) && !fs::is_directory(status)) {
    refuse("run", escape_controls(path),
           " is a file; expected a folder, or none yet; choose another with --out DIR");
  }
}

}  // namespace

bool is_run_file(std::string_view name) {
  return std::find(std::begin(owned_files), std::end(owned_files), name) != std::end(owned_files);
}

void require_usable(const std::string& path, Existing existing, std::string_view ways) {
  const std::string shown = escape_controls(path);
  require_no_file(path);
  const auto found = std::find_if(std::begin(owned_files), std::end(owned_files),
                                  [&](const std::string& name) { return fs::exists(fs::path(path) / name); });
  if (found == std::end(owned_files)) return;
  if (const std::string reason = not_a_run(path); !reason.empty()) {
    refuse("run", shown, " holds ", *found, " but no run of normscope; nothing was touched; choose another ",
           "folder with --out DIR: ", reason);
  }
  if (existing == Existing::refuse) {
    refuse("run", shown, " holds a run already; ", ways, ", or choose another folder with --out DIR");
  }
}

RunFolder::RunFolder(const std::string& path, Existing existing, IfLocked if_locked) : path_(path) {
  std::error_code error;
  require_no_file(path);
  fs::create_directories(path, error);
  if (error) fail("run", "could not create ", escape_controls(path), ": ", error.message());
  lock_.emplace(path, "", if_locked);
  require_usable(path, existing, "go on with --resume, start again with --overwrite");
  for (const std::string& name : owned_files) {
    fs::remove(temporary_path(file(name)), error);  // a write to it will say what an error here means
    if (existing == Existing::overwrite && !fs::remove(file(name), error) && error)
      fail("run", "could not remove ", escape_controls(file(name)), ": ", error.message());
  }
}

std::string RunFolder::file(std::string_view name) const { return (fs::path(path_) / name).string(); }

std::string RunFolder::file_to_write(std::string_view name) const {
  lock_->require_in_place();
  return file(name);
}

bool RunFolder::has(std::string_view name) const { return fs::exists(file(name)); }

CsvWriter open_metrics(const RunFolder& folder, CsvWriter::Open how) {
  return CsvWriter(folder.file(metrics_file),
                   {"step", "tokens", "train_loss", "val_loss", "lr", "grad_norm", "clip_factor", "step_ms",
                    "tokens_per_s"},
                   how);
}

void write_metrics(CsvWriter& csv, const MetricsRow& r) {
  csv.row(r.step, r.tokens, r.train_loss, r.val_loss, r.lr, r.grad_norm, r.clip_factor, r.step_ms,
          r.tokens_per_s);
  csv.flush();
}

CsvWriter open_layers(const RunFolder& folder, CsvWriter::Open how) {
  return CsvWriter(folder.file(layers_file),
                   {"step", "layer", "site", "mean", "rms", "abs_max", "nonfinite", "grad_rms",
                    "grad_abs_max", "grad_norm", "grad_nonfinite"},
                   how);
}

void add_layers(CsvWriter& csv, Index step, const std::vector<SiteRow>& rows) {
  for (const SiteRow& r : rows) {
    csv.row(step, r.place.layer, std::string_view(name_of(r.place.site)), r.mean, r.rms, r.abs_max,
            r.nonfinite, r.grad_rms, r.grad_abs_max, r.grad_norm, r.grad_nonfinite);
  }
}

void write_layers(CsvWriter& csv, Index step, const std::vector<SiteRow>& rows) {
  add_layers(csv, step, rows);
  csv.flush();
}

CsvWriter open_params(const RunFolder& folder, CsvWriter::Open how) {
  return CsvWriter(
      folder.file(params_file),
      {"step", "layer", "param", "numel", "rms", "grad_norm", "grad_norm_batch", "grad_rms", "update_rms"},
      how);
}

std::vector<ParameterRow> parameter_rows(const TrainConfig& config, const ParameterLayout& layout,
                                         const GradientNorms& norms,
                                         const std::vector<WeightChange>& changes) {
  std::vector<ParameterRow> rows;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const double n = static_cast<double>(layout.list()[i].size), norm = norms.by_parameter[i];
    rows.push_back({std::sqrt(changes[i].before / n), norm,
                    config.grad_accum == 1 ? std::optional(norm) : std::nullopt,
                    std::sqrt(changes[i].change / n)});
  }
  return rows;
}

void write_params(CsvWriter& csv, Index step, const ParameterLayout& layout,
                  const std::vector<ParameterRow>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Parameter& p = layout.list()[i];
    const ParameterRow& r = rows[i];
    if (!p.trainable) continue;
    csv.row(step, p.layer, std::string_view(p.name), p.size, r.rms, r.grad_norm, r.grad_norm_batch,
            r.grad_norm / std::sqrt(static_cast<double>(p.size)), r.update_rms);
  }
  csv.flush();
}

double grad_first_last(const ParameterLayout& layout, const std::vector<double>& norm_by_parameter) {
  const int last_block = static_cast<int>(layout.blocks.size());
  double first = 0, last = 0;
  for (std::size_t i = 0; i < norm_by_parameter.size(); ++i) {
    const double square = norm_by_parameter[i] * norm_by_parameter[i];
    if (layout.list()[i].layer == 1) first += square;
    if (layout.list()[i].layer == last_block) last += square;
  }
  return std::sqrt(first / last);
}

double growth(const std::vector<SiteRow>& rows) {
  // The first row is stream 0; the third from the end is stream L (final and logits follow).
  return rows[rows.size() - 3].rms / rows.front().rms;
}

std::optional<double> branch_share(const std::vector<SiteRow>& rows) {
  double stream = 0, sum = 0;
  int branches = 0;
  for (const SiteRow& row : rows) {
    const Site site = row.place.site;
    if (site == Site::attn_out || site == Site::ffn_out) {
      sum += stream > 0 ? row.rms / stream : 0;
      ++branches;
    }
    if (site == Site::stream || site == Site::stream_mid) stream = row.rms;
  }
  if (branches == 0 || !std::isfinite(sum)) return std::nullopt;
  return sum / branches;
}

bool branches_too_small(const ModelConfig& config, double share) {
  const std::vector<const Placement*> placements = placements_of(config);
  const bool by_design = std::any_of(placements.begin(), placements.end(), [](const Placement* row) {
    return row->norm_branch || row->learned_scale || row->init_gain(2) != 1;
  });
  return share < 0.05 && config.norm != NormKind::none && !by_design;
}

}  // namespace normscope
