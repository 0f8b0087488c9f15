// A measurement held against the theory: `predict CONFIG --against`.
#pragma once

#include <string>

#include "config/run_config.h"
#include "core/error.h"
#include "theory/predict.h"

namespace normscope {

// Prints measured over predicted of every site, and which sublayer is the first to leave. Exit::failure if
// one is off by more than `tolerance` and three standard deviations of what seeds differ by.
Exit print_against(const RunConfig& config, const TextStatistics& text, const std::string& measured,
                   double tolerance);

}  // namespace normscope
