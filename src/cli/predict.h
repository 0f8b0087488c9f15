// What `explain` says of a model before training.
#pragma once

#include <string>

#include "model/config.h"
#include "theory/predict.h"

namespace normscope {

// What theory expects of the stream, a line each; or why it expects nothing.
std::string start_text(const ModelConfig& config, const TextStatistics& statistics, const std::string& indent,
                       const TheoryOptions& options = {});

// The same of a placement: Xavier, ReLU, context 1, in the limit of wide layers.
std::string start_text(const Placement& row, Index n_layer);

// What an amplification means: of weights that are moved, in the stream.
std::string amplification_text(double amplification);

}  // namespace normscope
