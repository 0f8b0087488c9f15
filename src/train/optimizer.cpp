#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "kernels/simd.h"

namespace normscope {

template <class Real>
void measure_gradient(const Shares& shares, const ParameterBlock<Real>& gradients, GradientNorms& norms) {
  shares.sum_by_parameter(norms.scratch, norms.by_parameter, [&](const Piece& piece) {
    return kernels<Real>().sum_squares(piece.count, gradients.all().data() + piece.begin);
  });
  double squares = 0;
  for (std::size_t i = 0; i < norms.by_parameter.size(); ++i) {
    double& square = norms.by_parameter[i];
    squares += square;
    square = std::sqrt(square);
  }
  norms.total = std::sqrt(squares);
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
Optimizer<Real>::Optimizer(const TrainConfig& config, const ParameterLayout& layout, Communicator& ranks)
    : config_(config),
      shares_(layout, ranks),
      moments{std::vector<Real>(shares_.size()), std::vector<Real>(shares_.size())} {}

template <class Real>
const std::vector<WeightChange>& Optimizer<Real>::update(Index step, double lr, double gradient_scale,
                                                         const ParameterBlock<Real>& gradients,
                                                         ParameterBlock<Real>& parameters) {
  const auto kind = static_cast<std::size_t>(config_.optimizer);
  require(kind < std::size(optimizers<Real>), "optimizer", "no code for optimizer number ", kind);
  shares_.sum_by_parameter(scratch_, changes_, [&](const Piece& piece) -> WeightChange {
    const Parameter& p = shares_.layout()[piece.parameter];
    const Index n = piece.count, at = piece.begin - shares_.begin();
    const Real* g = gradients.all().data() + piece.begin;
    Real* w = parameters.all().data() + piece.begin;
    const double decay = p.is_matrix() ? 1 - lr * config_.weight_decay : 1.0;
    return optimizers<Real>[kind]({config_, static_cast<double>(step), lr, gradient_scale, decay, n, g, w,
                                   moments.first.data() + at, moments.second.data() + at});
  });
  shares_.ranks().complete(parameters.all().data(), floats_per_line * sizeof(Real), shares_.cut());
  return changes_;
}

template <class Real>
Moments<Real> Optimizer<Real>::gather_moments(ParameterBlock<Real>& scratch) const {
  Moments<Real> all;
  for (const auto moment : {&Moments<Real>::first, &Moments<Real>::second}) {
    std::ranges::copy(moments.*moment, scratch.all().begin() + shares_.begin());
    shares_.ranks().complete(scratch.all().data(), floats_per_line * sizeof(Real), shares_.cut());
    if (shares_.ranks().is_first()) all.*moment = scratch.all();
  }
  return all;
}

template <class Real>
void Optimizer<Real>::scatter_moments(const Moments<Real>& all, ParameterBlock<Real>& scratch) {
  for (const auto moment : {&Moments<Real>::first, &Moments<Real>::second}) {
    if (shares_.ranks().is_first()) scratch.all() = all.*moment;
    shares_.ranks().broadcast(scratch.all().data(), floats_per_line * sizeof(Real),
                              std::ssize(scratch.all()) / floats_per_line);
    std::copy_n(scratch.all().begin() + shares_.begin(), shares_.size(), (moments.*moment).begin());
  }
}

template void measure_gradient(const Shares&, const ParameterBlock<float>&, GradientNorms&);
template void measure_gradient(const Shares&, const ParameterBlock<double>&, GradientNorms&);
template class Optimizer<float>;
template class Optimizer<double>;

}  // namespace normscope
