// The figures of a run's record that its logs' rows give.
#pragma once

#include <optional>
#include <vector>

#include "model/config.h"
#include "run/logs.h"

namespace normscope {

// ||gradient of block 1's parameters|| / ||block L's||.
double grad_first_last(const std::vector<ParameterRow>& rows, Index n_layer);

// rms of stream L / rms of stream 0.
double growth(const std::vector<SiteRow>& rows);

// rms of what a branch adds (attn_out, ffn_out) / rms of the stream that it is added to, mean over all
// branches; nothing where there are none, or they are not finite.
std::optional<double> branch_share(const std::vector<SiteRow>& rows);

// Whether this share at the start is so small that the place of the norms can hardly matter. Not where a
// norm, a learned scale or an initialisation of its own stands behind a branch: its size is then the
// placement's doing.
bool branches_too_small(const ModelConfig& config, double share);

}  // namespace normscope
