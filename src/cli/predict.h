// The parts of `predict`, and what `explain` says of a model before training.
#pragma once

#include "config/run_config.h"
#include "core/error.h"
#include "theory/predict.h"

namespace normscope {

// What theory expects of the stream, a line each; or why it expects nothing.
std::string start_text(const ModelConfig& config, const TextStatistics& statistics, const std::string& indent,
                       const TheoryOptions& options = {});

// The same of a placement: Xavier, ReLU, context 1, in the limit of wide layers.
std::string start_text(const Placement& row, Index n_layer);

// Prints measured over predicted of every site, and which sublayer is the first to leave. Exit::failure if
// one is off by more than `tolerance` and three standard deviations of what seeds differ by.
Exit print_against(const RunConfig& config, const TextStatistics& text, const std::string& measured,
                   double tolerance);

// What an amplification means: of weights that are moved, in the stream.
std::string amplification_text(double amplification);

}  // namespace normscope
