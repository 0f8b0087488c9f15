// Combinations of keys that cannot be trained. Single values are checked by the field table.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace normscope {

// A combination that cannot be: the key to blame, what is wrong with it, and the other keys that take part.
struct Complaint {
  std::string key;
  std::string what;
  std::vector<std::string> others = {};
};

// All complaints about a settled config. 0 steps or sequences mean that the config does not say, and pass.
std::vector<Complaint> check_config(const RunConfig& config);

}  // namespace normscope
