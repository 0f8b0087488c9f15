// A run's folder: which files it has, and who may write there.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/file.h"

namespace normscope {

constexpr const char* config_file = "config.json";
constexpr const char* metrics_file = "metrics.csv";
constexpr const char* layers_file = "layers.csv";
constexpr const char* params_file = "params.csv";
constexpr const char* heads_file = "heads.csv";
constexpr const char* summary_file = "summary.json";
constexpr const char* checkpoint_file = "checkpoint.safetensors";
constexpr const char* previous_checkpoint_file = "checkpoint.previous.safetensors";
constexpr const char* model_file = "model.safetensors";
constexpr const char* best_file = "best.safetensors";  // previous_path(): see Trainer::restore_best
constexpr const char* sample_file = "sample.txt";

// Whether a run's folder has a file of its own under this name.
bool is_run_file(std::string_view name);

// What to do where a run is already.
enum class Existing { refuse, overwrite, resume };

// Refuses a path where a run can neither begin nor go on: a run's folder, if `existing` says so; a folder
// that holds files by the names of a run's, but no run, so that they are somebody else's; a path that is no
// folder. `ways`: what the user may do about a run that is there.
void require_usable(const std::string& path, Existing existing,
                    std::string_view ways = "start again with --overwrite");

// A folder that this process alone writes in, for as long as the object lives.
class RunFolder {
 public:
  // Creates the folder where it is missing, or takes one that is usable. The files of a run that is there are
  // removed (only those normscope writes), or kept for resuming.
  RunFolder(const std::string& path, Existing existing, IfLocked if_locked = IfLocked::fail);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  std::string file_to_write(std::string_view name) const;  // Error: the folder was removed or replaced
  bool has(std::string_view name) const;

 private:
  std::string path_;
  std::optional<FolderLock> lock_;
};

}  // namespace normscope
