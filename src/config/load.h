// Loads files and --set options into one resolved RunConfig, with the origin of each value.
#pragma once

#include <map>

#include "config/run_config.h"

namespace normscope {

struct Loaded {
  RunConfig config;
  // The origin of each value by dotted key: "configs/deep.json", "--set", "default" or "default: 4*d_model",
  // and the reason if the key has no effect.
  std::map<std::string, std::string> origins;
  // The keys to which the config or an option, but no file that it extends, gives a value that has no effect,
  // unless the key takes that value anyway: "train.momentum (--set: only optimizers sgd and muon have it)".
  std::vector<std::string> without_effect;
  std::vector<std::string> files;  // the config and those that it extends
};

struct LoadOptions {
  // False, for commands that need the model only: keys without a default may be missing (and stay empty or
  // 0), and data files need not exist.
  bool need_data = true;
  // True for a run's own config.json: if its corpus is no longer at the recorded path, it is looked for near
  // the run's folder.
  bool may_have_moved = false;
};

// Reads a config, the configs that it extends, and `sets` (each KEY=VALUE) over it. One Error{usage} has a
// line for every problem of a value. A file that cannot be a config (not JSON, no object, a sweep, a missing
// base) ends the reading at once.
Loaded load_config(const std::string& file, const std::vector<std::string>& sets = {},
                   const LoadOptions& options = {});

// The same for a text, such as the config in a checkpoint. `label` replaces the file in messages, relative
// paths and the default name.
Loaded load_config_text(std::string_view json_text, const std::string& label,
                        const std::vector<std::string>& sets = {}, const LoadOptions& options = {});

struct ConfigError {
  std::vector<std::string> keys;  // first the key to change, then the others involved
  std::string what;
};

// All combinations of a resolved config's keys that cannot be trained; load_config() reports them. Steps and
// batch_size are 0 if they are not given.
std::vector<ConfigError> check_config(const RunConfig& config);

}  // namespace normscope
