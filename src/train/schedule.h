// The learning rate of each update.
#pragma once

#include "config/run_config.h"

namespace normscope {

// Of update s = 1..S, w = warmup_steps: s <= w: lr*s/w. Then, with p = (s-w)/(S-w): cosine
// min_lr + (lr - min_lr)(1 + cos(pi p))/2; linear lr + (min_lr - lr) p; constant lr.
double learning_rate(const TrainConfig& config, Index step);

}  // namespace normscope
