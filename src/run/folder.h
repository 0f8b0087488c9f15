// A run's folder: its files, the lock of its one writer, and its logs.
#pragma once

#include <tuple>

#include "io/csv.h"
#include "telemetry/site_statistics.h"

namespace normscope {

constexpr const char* config_file = "config.json";
constexpr const char* metrics_file = "metrics.csv";
constexpr const char* layers_file = "layers.csv";
constexpr const char* params_file = "params.csv";
constexpr const char* heads_file = "heads.csv";
constexpr const char* summary_file = "summary.json";
constexpr const char* checkpoint_file = "checkpoint.safetensors";
constexpr const char* model_file = "model.safetensors";
constexpr const char* best_file = "best.safetensors";  // previous_path(): see Trainer::restore_best
constexpr const char* sample_file = "sample.txt";

// Whether a run writes a file of this name.
bool is_run_file(std::string_view name);

// What to do with a run that exists already.
enum class Existing { refuse, overwrite, resume };

// Usage Error for a path where a run can neither start nor be resumed: a file; a folder that is no run but
// holds files with the names of a run's, which are somebody else's; an existing run, unless `existing` allows
// it. `ways`: the user's choices about an existing run, for the message.
void require_usable(const std::string& path, Existing existing,
                    std::string_view ways = "start again with --overwrite");

// A run's folder, locked by this process for the lifetime of the object.
class RunFolder {
 public:
  // Creates the folder, or opens a usable one. The files of an existing run are removed (only those that
  // normscope writes) or kept for resuming.
  RunFolder(const std::string& path, Existing existing, IfLocked if_locked = IfLocked::fail);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  std::string file_to_write(std::string_view name) const;  // Error: the folder was removed or replaced
  bool has(std::string_view name) const;

 private:
  std::string path_;
  std::optional<FolderLock> lock_;
};

// --- logs ---

struct MetricsRow {
  Index step, tokens;  // tokens: seen by then
  float train_loss;
  std::optional<double> val_loss;
  double lr;
  float grad_norm;  // before clipping
  double clip_factor, step_ms, tokens_per_s;
  std::optional<double> noise_scale;
};

struct ParameterRow {
  Index layer;
  std::string_view param;  // its name, of a layout that outlives the row
  Index numel;
  double rms, grad_norm;
  std::optional<double> grad_norm_batch;
  double grad_rms;
  std::optional<double> update_rms, update_ratio;
};

// The numbers of a row of layers.csv, in the order of its columns.
template <class Row>
auto numbers_of(Row& row) {
  return std::tie(row.mean, row.rms, row.abs_max, row.nonfinite, row.grad_rms, row.grad_abs_max,
                  row.grad_norm, row.grad_nonfinite, row.kurtosis, row.dead, row.cos_in, row.branch_share);
}

// layers.csv, params.csv and heads.csv. `last_step`: goes on after the rows of that step; without it the logs
// begin anew.
struct LayerLogs {
  explicit LayerLogs(const RunFolder& folder, std::optional<Index> last_step = std::nullopt);

  void add_sites(Index step, const std::vector<SiteRow>& sites);  // not flushed
  void write(Index step, const std::vector<SiteRow>& sites, const std::vector<ParameterRow>& parameters,
             const std::vector<HeadRow>& head_rows);

  CsvWriter layers, params, heads;
};

CsvWriter open_metrics(const RunFolder& folder, std::optional<Index> last_step);  // as LayerLogs
void write_metrics(CsvWriter& csv, const MetricsRow& row);

}  // namespace normscope
