// Figures of a run's record, computed from rows of its logs.
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

// rms of a branch (attn_out, ffn_out) / rms of the stream that it is added to, mean over all branches;
// nothing if there are none or the mean is not finite.
std::optional<double> branch_share(const std::vector<SiteRow>& rows);

// Whether the branch_share at the start is so small that the norms' place can hardly matter. False if the
// placement itself sets the size of the branches by a norm, a learned scale or the init.
bool branches_too_small(const ModelConfig& config, double share);

}  // namespace normscope
