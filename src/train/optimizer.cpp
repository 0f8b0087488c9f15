#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {

std::vector<ParameterPart> parts_of(const ParameterLayout& layout) {
  std::vector<ParameterPart> parts;
  for (int i = 0; i < static_cast<int>(layout.list().size()); ++i) {
    const Parameter& p = layout[i];
    if (p.role != Role::qkv) {
      parts.push_back({i, p.name, p.offset, p.size});
      continue;
    }
    const Index third = p.size / 3;
    Index offset = p.offset;
    for (const char* name : {"q", "k", "v"}) {
      parts.push_back({i, p.name, offset, third});
      parts.back().name.replace(p.name.rfind("qkv"), 3, name);
      offset += third;
    }
  }
  return parts;
}

template <class Sum>
PartSums<Sum>::PartSums(const std::vector<ParameterPart>& parts) : parts_(parts.size()) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (Index begin = 0; begin < parts[i].size; begin += elements_per_block)
      blocks_.push_back({static_cast<int>(i), parts[i].offset + begin,
                         std::min(elements_per_block, parts[i].size - begin)});
  }
  by_block_.resize(blocks_.size());
}

template <class Real>
GradientNorms<Real>::GradientNorms(const ParameterLayout& layout) : parts(parts_of(layout)), sums_(parts) {}

template <class Real>
void GradientNorms<Real>::measure(const ParameterBlock<Real>& gradients) {
  sums_.measure(by_part, [&](const auto& block) {
    return kernels<Real>().sum_squares(block.count, gradients.all().data() + block.begin);
  });
  double squares = 0;
  for (std::size_t i = 0; i < by_part.size(); ++i) {
    double& square = by_part[i];
    squares += square;
    square = std::sqrt(square);
  }
  total = std::sqrt(squares);
}

double clip_factor(double grad_clip, double norm) {
  return grad_clip > 0 && norm > grad_clip ? grad_clip / norm : 1.0;
}

double learning_rate(const TrainConfig& config, Index step) {
  const double s = static_cast<double>(step), w = static_cast<double>(config.warmup_steps);
  if (step <= config.warmup_steps) return config.lr * s / w;
  if (config.steps - config.warmup_steps == 1) return config.lr;  // a single step decays nothing
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

template <class Real>
Optimizer<Real>::Optimizer(const TrainConfig& config, const ParameterLayout& layout)
    : moments{std::vector<Real>(layout.block_size()), std::vector<Real>(layout.block_size())},
      config_(config),
      layout_(layout),
      parts_(parts_of(layout)),
      sums_(parts_) {}

template <class Real>
const std::vector<WeightChange>& Optimizer<Real>::update(Index step, double lr, double gradient_scale,
                                                         const ParameterBlock<Real>& gradients,
                                                         ParameterBlock<Real>& parameters) {
  const TrainConfig& c = config_;
  const double t = static_cast<double>(step);
  const AdamW<Real> adamw{.gradient_scale = static_cast<Real>(gradient_scale),
                          .beta1 = static_cast<Real>(c.beta1),
                          .beta2 = static_cast<Real>(c.beta2),
                          .one_minus_beta1 = static_cast<Real>(1 - c.beta1),
                          .one_minus_beta2 = static_cast<Real>(1 - c.beta2),
                          .eps = static_cast<Real>(c.adam_eps),
                          .decay = 1,
                          .step_size = static_cast<Real>(lr / (1 - std::pow(c.beta1, t))),
                          .inv_sqrt_correction2 = static_cast<Real>(1 / std::sqrt(1 - std::pow(c.beta2, t)))};
  const MomentumStep<Real> sgd{.gradient_scale = static_cast<Real>(gradient_scale),
                               .momentum = static_cast<Real>(c.momentum),
                               .decay = 1,
                               .lr = static_cast<Real>(lr)};
  sums_.measure(changes_, [&](const auto& block) -> WeightChange {
    const bool is_matrix = layout_[parts_[block.part].parameter].is_matrix();
    const auto decay = static_cast<Real>(is_matrix ? 1 - lr * c.weight_decay : 1.0);
    const Real* g = gradients.all().data() + block.begin;
    Real* w = parameters.all().data() + block.begin;
    Real *m = moments.first.data() + block.begin, *v = moments.second.data() + block.begin;
    switch (c.optimizer) {
      case OptimizerKind::adamw: {
        AdamW<Real> rule = adamw;
        rule.decay = decay;
        return kernels<Real>().adamw(block.count, rule, g, w, m, v);
      }
      case OptimizerKind::sgd: {
        MomentumStep<Real> rule = sgd;
        rule.decay = decay;
        return kernels<Real>().momentum_step(block.count, rule, g, w, m);
      }
    }
    fail("optimizer", "no code for optimizer number ", static_cast<int>(c.optimizer));
  });
  return changes_;
}

template class GradientNorms<float>;
template class GradientNorms<double>;
template class Optimizer<float>;
template class Optimizer<double>;

}  // namespace normscope
