#include "train/learning_rate.h"

#include <numbers>

#include "core/error.h"
#include "core/portable_math.h"

namespace normscope {

double learning_rate(const TrainConfig& config, Index step) {
  const double s = static_cast<double>(step), w = static_cast<double>(config.warmup_steps);
  if (step <= config.warmup_steps) return config.lr * s / w;
  if (config.steps - config.warmup_steps == 1) return config.lr;
  const double p = (s - w) / (static_cast<double>(config.steps) - w);
  const auto linear = [&](double share) { return config.lr + (config.min_lr - config.lr) * share; };
  switch (config.schedule) {
    case ScheduleKind::constant:
      return config.lr;
    case ScheduleKind::linear:
      return linear(p);
    case ScheduleKind::wsd:
      return p > 1 - config.cooldown ? linear((p - 1) / config.cooldown + 1) : config.lr;
    case ScheduleKind::cosine:
      return config.min_lr + (config.lr - config.min_lr) * (1 + portable::cos(std::numbers::pi * p)) / 2;
  }
  fail("schedule", "no code for schedule number ", static_cast<int>(config.schedule));
}

}  // namespace normscope
