#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "kernels/reduce.h"
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

namespace {

// The arguments of an optimiser's update number `step` of n weights w with gradient g and moments m and v.
template <class Real>
struct PieceUpdate {
  const TrainConfig& config;
  double step, lr, gradient_scale, decay;
  Index n;
  const Real* g;
  Real *w, *m, *v;
};

template <class Real>
WeightChange update_adamw(const PieceUpdate<Real>& u) {
  const TrainConfig& c = u.config;
  const AdamW<Real> rule{
      .gradient_scale = static_cast<Real>(u.gradient_scale),
      .beta1 = static_cast<Real>(c.beta1),
      .beta2 = static_cast<Real>(c.beta2),
      .one_minus_beta1 = static_cast<Real>(1 - c.beta1),
      .one_minus_beta2 = static_cast<Real>(1 - c.beta2),
      .eps = static_cast<Real>(c.adam_eps),
      .decay = static_cast<Real>(u.decay),
      .step_size = static_cast<Real>(u.lr / (1 - std::pow(c.beta1, u.step))),
      .inv_sqrt_correction2 = static_cast<Real>(1 / std::sqrt(1 - std::pow(c.beta2, u.step)))};
  return kernels<Real>().adamw(u.n, rule, u.g, u.w, u.m, u.v);
}

template <class Real>
WeightChange update_sgd(const PieceUpdate<Real>& u) {
  const MomentumStep<Real> rule{.gradient_scale = static_cast<Real>(u.gradient_scale),
                                .momentum = static_cast<Real>(u.config.momentum),
                                .decay = static_cast<Real>(u.decay),
                                .lr = static_cast<Real>(u.lr)};
  return kernels<Real>().momentum_step(u.n, rule, u.g, u.w, u.m);
}

// The optimisers, in the order of OptimizerKind.
template <class Real>
constexpr WeightChange (*optimizers[])(const PieceUpdate<Real>&) = {update_adamw, update_sgd};

}  // namespace

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
  const auto kind = static_cast<std::size_t>(config_.optimizer);
  require(kind < std::size(optimizers<Real>), "optimizer", "no code for optimizer number ", kind);
  sums_.measure(changes_, [&](const auto& block) -> WeightChange {
    const Parameter& p = layout_[parts_[block.part].parameter];
    const Index n = block.count;
    const Real* g = gradients.all().data() + block.begin;
    Real* w = parameters.all().data() + block.begin;
    const double decay = p.is_matrix() ? 1 - lr * config_.weight_decay : 1.0;
    return optimizers<Real>[kind]({config_, static_cast<double>(step), lr, gradient_scale, decay, n, g, w,
                                   moments.first.data() + block.begin, moments.second.data() + block.begin});
  });
  return changes_;
}

template class GradientNorms<float>;
template class GradientNorms<double>;
template class Optimizer<float>;
template class Optimizer<double>;

}  // namespace normscope
