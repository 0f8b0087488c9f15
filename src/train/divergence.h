// The first tensor of a diverged step that is not finite.
#pragma once

#include <string>

#include "model/parameters.h"
#include "run/record.h"
#include "telemetry/site_statistics.h"
#include "train/optimizer.h"

namespace normscope {

// The first site of a step, computed with every tap on, that is not finite; else the first parameter whose
// gradient is not; else the loss.
FirstNonfinite first_nonfinite(const SiteStatistics& statistics, const GradientNorms<float>& norms,
                               const ParameterLayout& layout, Index step);

// "the gradient of block 1 ffn_hidden", "the logits".
std::string text_of(const FirstNonfinite& first, Index n_layer);

}  // namespace normscope
