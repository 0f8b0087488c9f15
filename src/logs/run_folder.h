// A run's folder: its files, the lock of its one writer, and its logs metrics.csv, layers.csv, params.csv and
// heads.csv.
#pragma once

#include <array>
#include <string>

#include "io/csv.h"
#include "io/file.h"
#include "logs/site_stats.h"

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
constexpr const char* kept_folder = "weights";
std::string kept_file(Index step);  // "weights/step_8.safetensors"

// The steps of which a run folder keeps the weights (checkpoint.keep_every), ascending.
std::vector<Index> kept_steps(const std::string& folder);

// The folder of a probe's seed is called "seed-1"; it holds files as a run's does.
constexpr const char* seed_prefix = "seed-";

// The action for a run that exists already.
enum class Existing { refuse, overwrite, resume };

// The files that a command reads: its config and all that it extends, its texts, the weights of --from.
using InputFiles = std::vector<std::string>;

// Usage Error unless a run can start or go on at this path. It cannot if the path is a file, if the folder is
// no run but holds files with the names of a run's (they belong to somebody else), if one of the run's files
// is an input (its config may be, of a run that goes on), or if it is a run and `existing` refuses one.
void require_usable(const std::string& path, Existing existing, const InputFiles& inputs);

// Usage Error unless a command may write a file beside its run: one of its inputs, under whatever name or
// link, and a run's own file are never replaced, and any other file only if `overwrite` asks for it.
void require_output(const std::string& path, const InputFiles& inputs, bool overwrite);

// Usage Error unless the folder has a file `name`; without a folder it names the nearest one beside it.
void require_run(const std::string& folder, std::string_view name);

// A run's folder, locked by this process for the lifetime of the object.
class RunFolder {
 public:
  // Creates the folder, or opens a usable one. With Existing::overwrite the files that normscope writes are
  // removed. Error: another process writes in the folder.
  RunFolder(const std::string& path, Existing existing, const InputFiles& inputs = {});

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  bool has(std::string_view name) const;
  void remove_kept(Index last_step) const;            // the kept weights of later steps
  bool is_locked() const { return lock_.is_held(); }  // false: the file system has no locks

 private:
  std::string path_;
  FolderLock lock_;
};

// --- logs; src/logs/README.md defines their columns ---

struct MetricsRow {
  Index step, tokens;  // tokens: the characters trained on so far
  double seconds;      // of all steps since the run began
  float train_loss;
  std::optional<double> val_loss;
  double lr;
  float grad_norm;  // before clipping
  double clip_factor, step_ms, tokens_per_s;
  float train_loss_max, grad_norm_max;  // since the row before
};

struct ParameterRow {
  Index layer;
  std::string_view param;  // the parameter's name, in a layout that outlives the row
  Index numel;
  double rms, grad_norm;
  std::optional<double> grad_norm_batch;
  double grad_rms;
  std::optional<double> update_rms;
  std::optional<double> value = {};  // of a parameter of one number, after the update
};

// layers.csv, params.csv and heads.csv, opened or created.
struct LayerLogs {
  explicit LayerLogs(const RunFolder& folder);

  void write(Index step, const std::vector<SiteRow>& sites, const std::vector<ParameterRow>& parameters,
             const std::vector<HeadRow>& head_rows);
  std::array<CsvWriter*, 3> all() { return {&layers, &params, &heads}; }

  static constexpr Index keys = 3;  // a row's step, layer, and site, parameter or head
  CsvWriter layers, params, heads;
};

CsvWriter open_metrics(const RunFolder& folder);
void write_metrics(CsvWriter& csv, const MetricsRow& row);

// The time of a run's first `steps` steps by the last row of metrics.csv: its mean time of a step, times
// `steps`. A checkpoint has no times, so that its bytes do not depend on the machine.
double logged_seconds(const RunFolder& folder, Index steps);

}  // namespace normscope
