#include "train/schedule.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace normscope {

double learning_rate(const TrainConfig& config, Index step) {
  const double s = static_cast<double>(step), w = static_cast<double>(config.warmup_steps);
  if (step <= config.warmup_steps) return config.lr * s / w;
  const double p = (s - w) / (static_cast<double>(config.steps) - w);
  switch (config.schedule) {
    case ScheduleKind::constant:
      return config.lr;
    case ScheduleKind::linear:
      return config.lr + (config.min_lr - config.lr) * p;
    case ScheduleKind::cosine:
      return config.min_lr + (config.lr - config.min_lr) * (1 + std::cos(std::numbers::pi * p)) / 2;
  }
  fail("schedule", "no code for schedule number ", static_cast<int>(config.schedule));
}

}  // namespace normscope
