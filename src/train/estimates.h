// The arithmetic, the time and the memory of a training step, from the config alone.
#pragma once

#include "config/run_config.h"
#include "model/parameters.h"

namespace normscope {

// Floating-point operations of forward and backward per token: 6 per parameter in a GEMM, and 6 L C (T+1) for
// the unmasked half of attention (2 products forward, 4 backward, 2 operations each, (T+1)/2 keys).
double training_flops_per_token(const ModelConfig& config, const ParameterLayout& layout);

// Estimated seconds of a training step on `tokens` tokens with the threads in use: operations over a typical
// rate of the instruction set.
double expected_step_seconds(const ModelConfig& config, const ParameterLayout& layout, Index tokens);

// Usage Error, before anything is allocated, if this machine or container lacks the memory. `copies`:
// the models of this process at a time; a model in double counts as two.
void require_memory(const RunConfig& config, Index vocab_size, Index batch_size, Index copies = 1);

}  // namespace normscope
