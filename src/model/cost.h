// What a step of a model costs: arithmetic and memory, from its config alone.
#pragma once

#include "model/parameters.h"

namespace normscope {

// Floating-point operations of forward and backward a token: 6 a parameter that multiplies, and 6 L C (T+1)
// for the half of attention's scores that the mask leaves (2 products forward, 4 backward, 2 operations each,
// (T+1)/2 keys).
double training_flops_per_token(const ModelConfig& config, const ParameterLayout& layout);

// Memory of training, bytes: weights, gradients, two moments, sums that wait in the tree over `grad_accum`
// micro-batches; values and gradients of one micro-batch of `batch_size` sequences. An estimate, within some
// ten per cent for models that fill a machine.
double training_bytes(const ModelConfig& config, const ParameterLayout& layout, Index vocab_size,
                      Index batch_size, Index grad_accum);

// Refuses (usage Error, with the figure) what this machine has no room for, in so many processes, before
// anything is allocated.
void require_memory(const ModelConfig& config, Index vocab_size, Index batch_size, Index grad_accum = 1,
                    Index processes = 1);

}  // namespace normscope
