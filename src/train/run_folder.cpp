#include "train/run_folder.h"

#include <cmath>
#include <filesystem>

#include "io/utf8.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// In the order of removal, which a kill may cut short. Checkpoints first: none is left beside logs that are
// gone. config.json last: while it is there the folder is a run, and the removal can be repeated.
constexpr const char* owned_files[] = {checkpoint_file, previous_checkpoint_file,
                                       summary_file,    metrics_file,
                                       layers_file,     params_file,
                                       model_file,      best_file,
                                       sample_file,     config_file};

std::string named(const std::string& path) { return printable(path); }

}  // namespace

RunFolder::RunFolder(const std::string& path, Existing existing) : path_(path) {
  std::error_code error;
  if (path.empty()) refuse("run", "the folder's name is empty; name one with --out DIR");
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    fail("run", named(path), " cannot be looked up: ", error.message());
  if (fs::exists(status) && !fs::is_directory(status)) {
    refuse("run", named(path), " is a file; expected a folder, or none yet; choose another with --out DIR");
  }
  fs::create_directories(path, error);
  if (error) fail("run", "could not create ", named(path), ": ", error.message());
  lock_.emplace(path);
  const bool is_run = has(config_file);
  if (is_run && existing == Existing::refuse) {
    refuse("run", named(path),
           " holds a run already; go on with --resume, start again with --overwrite, or choose ",
           "another folder with --out DIR");
  }
  for (const char* name : owned_files) {
    if (is_run || !has(name)) continue;
    refuse("run", named(path), " holds ", name, " but no ", config_file,
           ", so it is not a run; nothing was touched; ", "choose another folder with --out DIR");
  }
  if (existing == Existing::overwrite && is_run) {
    for (const char* name : owned_files) {
      fs::remove(file(name), error);
      if (error) fail("run", "could not remove ", named(file(name)), ": ", error.message());
    }
  }
}

std::string RunFolder::file(const char* name) const { return (fs::path(path_) / name).string(); }

std::string RunFolder::file_to_write(const char* name) const {
  lock_->require_in_place();
  return file(name);
}

bool RunFolder::has(const char* name) const { return fs::exists(file(name)); }

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

void write_params(CsvWriter& csv, Index step, const ParameterLayout& layout,
                  const std::vector<ParameterRow>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Parameter& p = layout.list()[i];
    const ParameterRow& r = rows[i];
    if (!p.trainable) continue;
    csv.row(step, p.layer, std::string_view(p.name), p.size, r.rms, r.grad_norm, r.grad_norm_batch,
            r.grad_rms, r.update_rms);
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

}  // namespace normscope
