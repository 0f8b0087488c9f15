// Combinations of keys that cannot be trained. Single values are checked by the field table.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace normscope {

struct ConfigError {
  std::vector<std::string> keys;  // the one to blame, then the others that take part
  std::string what;
};

// All errors of a resolved config. 0 steps or sequences mean that the config does not say, and pass.
std::vector<ConfigError> check_config(const RunConfig& config);

}  // namespace normscope
