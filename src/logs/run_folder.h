// A run's folder: its files, the lock of its one writer, and its logs metrics.csv, layers.csv, params.csv and
// heads.csv.
#pragma once

#include <string>

#include "io/csv.h"
#include "io/file.h"
#include "logs/sites.h"

namespace normscope {

constexpr const char* config_file = "config.json";
constexpr const char* metrics_file = "metrics.csv";
constexpr const char* layers_file = "layers.csv";
constexpr const char* params_file = "params.csv";
constexpr const char* heads_file = "heads.csv";
constexpr const char* summary_file = "summary.json";
constexpr const char* checkpoint_file = "checkpoint.safetensors";
constexpr const char* model_file = "model.safetensors";
constexpr const char* best_file = "best.safetensors";
constexpr const char* sample_file = "sample.txt";

// What to do with a run that exists already.
enum class Existing { refuse, overwrite, resume };

// Usage Error for a path where a run can neither start nor be resumed: a file; a folder that is no run but
// holds files with the names of a run's, which are somebody else's; an existing run, unless `existing` allows
// it. `ways`: the user's choices about an existing run, for the message.
void require_usable(const std::string& path, Existing existing,
                    std::string_view ways = "start again with --overwrite");

// Usage Error for a folder that holds no file `name`, with the runs that lie in it.
void require_run(const std::string& folder, std::string_view name);

// A run's folder, locked by this process for the lifetime of the object.
class RunFolder {
 public:
  // Creates the folder, or opens a usable one. The files of an existing run are removed (only those that
  // normscope writes) or kept for resuming. Error: another process writes in it.
  RunFolder(const std::string& path, Existing existing);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  bool has(std::string_view name) const;
  bool is_locked() const { return lock_.is_held(); }  // false: the file system has no locks

 private:
  std::string path_;
  FolderLock lock_;
};

struct MetricsRow {
  Index step, tokens;  // tokens: seen by then
  float train_loss;
  std::optional<double> val_loss;
  double lr;
  float grad_norm;  // before clipping
  double clip_factor, step_ms, tokens_per_s;
};

struct ParameterRow {
  Index layer;
  std::string_view param;  // its name, of a layout that outlives the row
  Index numel;
  double rms, grad_norm;
  std::optional<double> grad_norm_batch;
  double grad_rms;
  std::optional<double> update_rms;
};

// layers.csv, params.csv and heads.csv. `last_step`: goes on after the rows of that step; without it the logs
// begin anew.
struct LayerLogs {
  explicit LayerLogs(const RunFolder& folder, std::optional<Index> last_step = std::nullopt);

  void write(Index step, const std::vector<SiteRow>& sites, const std::vector<ParameterRow>& parameters,
             const std::vector<HeadRow>& head_rows);

  CsvWriter layers, params, heads;
};

CsvWriter open_metrics(const RunFolder& folder, std::optional<Index> last_step);  // as LayerLogs
void write_metrics(CsvWriter& csv, const MetricsRow& row);

}  // namespace normscope
