// What one key of a config means for the others: values that follow from other choices, and combinations that
// cannot be trained. Single values are checked by the field table.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace normscope {

// A value that another choice decides, whatever was written.
struct Consequence {
  std::string key;
  std::string why;
};

// Settles the norm where the placements have none. Comes before the dependent defaults.
std::vector<Consequence> settle_norm(RunConfig& config);

// Settles what follows from the norm. Comes after the dependent defaults.
std::vector<Consequence> settle_rest(RunConfig& config);

// Keys that have no effect beside the others. That is no mistake (a base config may set what a child has no
// use for), but whoever looks where a value comes from is told.
std::vector<Consequence> keys_without_effect(const RunConfig& config);

// A combination that cannot be: the key to blame, what is wrong with it, and the other keys that take part.
struct Complaint {
  std::string key;
  std::string what;
  std::vector<std::string> others = {};
};

// All complaints about a settled config. 0 steps or sequences mean that the config does not say, and pass.
std::vector<Complaint> check_config(const RunConfig& config);

}  // namespace normscope
