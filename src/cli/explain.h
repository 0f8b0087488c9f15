// The parts of `explain` that show models.
#pragma once

#include "config/run_config.h"

namespace normscope {

// A placement's drawing, equations and gradient.
void explain_placement(const Placement& row);

// The equations and parameter counts of a config's own blocks.
void explain_config(const RunConfig& config);

}  // namespace normscope
