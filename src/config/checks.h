// Combinations of keys that cannot be trained. Single values are checked by the field table.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace normscope {

struct ConfigError {
  std::vector<std::string> keys;  // the one to change first, then the others involved
  std::string what;
};

// All errors of a resolved config. Steps and batch_size may be 0, for not given.
std::vector<ConfigError> check_config(const RunConfig& config);

}  // namespace normscope
