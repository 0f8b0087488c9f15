// The schedules of the learning rate.
#pragma once

#include "config/run_config.h"

namespace normscope {

// The learning rate at s = 1..S with w = warmup_steps: lr*s/w for s <= w, then, with p = (s-w)/(S-w),
//   cosine    min_lr + (lr - min_lr)(1 + cos(pi p))/2
//   linear    lr + (min_lr - lr) p
//   constant  lr
//   wsd       warm-up, stable, decay: lr, then linear to min_lr over the last share `cooldown` of S-w
// A single step after the warm-up (S-w = 1) trains at lr. A resumed run with more steps has the schedule of the new
// S from there on, so its rate may jump up: a finished wsd run goes back to lr.
double learning_rate(const TrainConfig& config, Index step);

}  // namespace normscope
