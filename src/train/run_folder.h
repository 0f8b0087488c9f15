// A run's folder: which files it has, who may write there, what the logs' rows are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/csv.h"
#include "io/file.h"
#include "model/parameters.h"
#include "telemetry/site_statistics.h"
#include "train/optimizer.h"

namespace normscope {

constexpr const char* config_file = "config.json";
constexpr const char* metrics_file = "metrics.csv";
constexpr const char* layers_file = "layers.csv";
constexpr const char* params_file = "params.csv";
constexpr const char* summary_file = "summary.json";
constexpr const char* checkpoint_file = "checkpoint.safetensors";
constexpr const char* previous_checkpoint_file = "checkpoint.previous.safetensors";
constexpr const char* model_file = "model.safetensors";
constexpr const char* best_file = "best.safetensors";  // previous_path(): see Trainer::settle_best
constexpr const char* sample_file = "sample.txt";

// Whether a run's folder has a file of its own under this name.
bool is_run_file(std::string_view name);

// What to do where a run is already.
enum class Existing { refuse, overwrite, resume };

// Usage Errors where a run cannot begin (or go on) in the folder: there is a run already and `existing`
// refuses it; the folder holds files by the names of a run's, but no run, so they are somebody else's; it is
// no folder. `ways`: how else to go on where a run is.
void require_usable(const std::string& path, Existing existing,
                    std::string_view ways = "start again with --overwrite");

// A folder that this process alone writes in, for as long as the object lives.
class RunFolder {
 public:
  // Creates the folder where it is missing; require_usable() says what else it may be. The files of a run
  // that is there are removed (only those normscope writes), or kept for resuming.
  RunFolder(const std::string& path, Existing existing, IfLocked if_locked = IfLocked::fail);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  std::string file_to_write(std::string_view name) const;  // Error: the folder was removed or replaced
  bool has(std::string_view name) const;

 private:
  std::string path_;
  std::optional<FolderLock> lock_;
};

// One row of metrics.csv.
struct MetricsRow {
  Index step, tokens;
  float train_loss;
  std::optional<double> val_loss;
  double lr;
  float grad_norm;
  double clip_factor, step_ms, tokens_per_s;
};
CsvWriter open_metrics(const RunFolder& folder, CsvWriter::Open how);
void write_metrics(CsvWriter& csv, const MetricsRow& row);

CsvWriter open_layers(const RunFolder& folder, CsvWriter::Open how);
void add_layers(CsvWriter& csv, Index step, const std::vector<SiteRow>& rows);  // not flushed
void write_layers(CsvWriter& csv, Index step, const std::vector<SiteRow>& rows);

// One row of params.csv: what is not there is left empty.
struct ParameterRow {
  double rms, grad_norm;
  std::optional<double> grad_norm_batch;
  std::optional<double> update_rms;
};
// Of a training step, from its gradient's norms and what its update did.
std::vector<ParameterRow> parameter_rows(const TrainConfig& config, const ParameterLayout& layout,
                                         const GradientNorms& norms,
                                         const std::vector<WeightChange>& changes);
CsvWriter open_params(const RunFolder& folder, CsvWriter::Open how);
void write_params(CsvWriter& csv, Index step, const ParameterLayout& layout,
                  const std::vector<ParameterRow>& rows);

// ||gradient of block 1's parameters|| / ||block L's||.
double grad_first_last(const ParameterLayout& layout, const std::vector<double>& norm_by_parameter);

// rms of stream L / rms of stream 0.
double growth(const std::vector<SiteRow>& rows);

// rms of what a branch adds (attn_out, ffn_out) / rms of the stream that it is added to, mean over all
// branches; nothing where there are none, or they are not finite.
std::optional<double> branch_share(const std::vector<SiteRow>& rows);

// Whether this share at the start is so small that the place of the norms can hardly matter. Not where a
// norm, a learned scale or an initialisation of its own stands behind a branch: its size is then the
// placement's doing.
bool branches_too_small(const ModelConfig& config, double share);

}  // namespace normscope
