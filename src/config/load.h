// Loads files and --set options into one resolved RunConfig, with the origin of each value.
#pragma once

#include <map>

#include "config/run_config.h"

namespace normscope {

struct Loaded {
  RunConfig config;
  // By dotted key: "configs/deep.json", "--set", "default", "default: 4*d_model"; and why without effect.
  std::map<std::string, std::string> origins;
  // The keys that are set to other values than their defaults where they have no effect: "train.momentum
  // (only sgd has it)".
  std::vector<std::string> without_effect;
};

struct LoadOptions {
  // False: keys without a default may be missing (and stay empty or 0), and data files need not exist, for
  // commands that need the model only.
  bool need_data = true;
  // True for the config of a run: a text that is not where it was is looked for where the run is now.
  bool may_have_moved = false;
};

// Reads a config, the configs that it extends, and `sets` (each KEY=VALUE) over it. One Error{usage} has a
// line for every problem, except that a file that is no JSON ends the reading at once.
Loaded load_config(const std::string& file, const std::vector<std::string>& sets = {},
                   const LoadOptions& options = {});

// The same for a text, such as the config in a checkpoint. `label` replaces the file in messages, relative
// paths and the default name.
Loaded load_config_text(std::string_view json_text, const std::string& label,
                        const std::vector<std::string>& sets = {}, const LoadOptions& options = {});

struct ConfigError {
  std::vector<std::string> keys;  // the one to change first, then the others involved
  std::string what;
};

// All combinations of a resolved config's keys that cannot be trained; load_config() reports them. Steps and
// batch_size may be 0, for not given.
std::vector<ConfigError> check_config(const RunConfig& config);

}  // namespace normscope
