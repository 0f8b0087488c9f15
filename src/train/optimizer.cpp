#include "train/optimizer.h"

#include <cmath>

#include "core/error.h"

namespace normscope {

template <class Real>
void measure_gradient(const ParameterLayout& layout, const ParameterBlock<Real>& gradients,
                      GradientNorms& norms) {
  norms.by_parameter.clear();  // keeps its room
  double squares = 0;
  for (const Parameter& p : layout.list()) {
    double square = sum_squares(p.size, gradients.at(p));
    // Of running statistics it is what they change by, which counts only where it would spoil them.
    if (!p.trainable && std::isfinite(square)) square = 0;
    norms.by_parameter.push_back(std::sqrt(square));
    squares += square;
  }
  norms.total = std::sqrt(squares);
}

template <class Real>
GradientNorms gradient_norms(const ParameterLayout& layout, const ParameterBlock<Real>& gradients) {
  GradientNorms norms;
  measure_gradient(layout, gradients, norms);
  return norms;
}

double clip_factor(double grad_clip, double norm) {
  return grad_clip > 0 && norm > grad_clip ? grad_clip / norm : 1.0;
}

namespace {

// A tensor of n weights w, its gradient g and its moments m and v, and what update number `step` does to it.
template <class Real>
struct TensorUpdate {
  const TrainConfig& config;
  double step, lr, gradient_scale, decay;
  Index n;
  const Real* g;
  Real *w, *m, *v;
};

template <class Real>
WeightChange update_adamw(const TensorUpdate<Real>& u) {
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
  return adamw(u.n, rule, u.g, u.w, u.m, u.v);
}

template <class Real>
WeightChange update_sgd(const TensorUpdate<Real>& u) {
  const MomentumStep<Real> rule{.gradient_scale = static_cast<Real>(u.gradient_scale),
                                .momentum = static_cast<Real>(u.config.momentum),
                                .decay = static_cast<Real>(u.decay),
                                .lr = static_cast<Real>(u.lr)};
  return momentum_step(u.n, rule, u.g, u.w, u.m);
}

// The optimisers, in the order of OptimizerKind.
template <class Real>
constexpr WeightChange (*optimizers[])(const TensorUpdate<Real>&) = {update_adamw, update_sgd};

}  // namespace

template <class Real>
const std::vector<WeightChange>& Optimizer<Real>::update(Index step, double lr, double gradient_scale,
                                                         const ParameterBlock<Real>& gradients,
                                                         ParameterBlock<Real>& parameters) {
  const auto kind = static_cast<std::size_t>(config_.optimizer);
  require(kind < std::size(optimizers<Real>), "optimizer", "no code for optimizer number ", kind);
  changes_.clear();  // keeps its room
  for (const Parameter& p : layout_.list()) {
    const Real* g = gradients.at(p);
    Real* w = parameters.at(p);
    if (!p.trainable) {  // running statistics: their gradient holds what the step's batches change them by
      changes_.push_back({sum_squares(p.size, w), sum_squares(p.size, g)});
      axpby(p.size, Real(1), g, Real(1), w);
      continue;
    }
    const double decay = p.is_matrix() ? 1 - lr * config_.weight_decay : 1.0;
    changes_.push_back(optimizers<Real>[kind]({config_, static_cast<double>(step), lr, gradient_scale, decay,
                                               p.size, g, w, first_moment.at(p), second_moment.at(p)}));
  }
  return changes_;
}

template void measure_gradient(const ParameterLayout&, const ParameterBlock<float>&, GradientNorms&);
template void measure_gradient(const ParameterLayout&, const ParameterBlock<double>&, GradientNorms&);
template GradientNorms gradient_norms(const ParameterLayout&, const ParameterBlock<float>&);
template GradientNorms gradient_norms(const ParameterLayout&, const ParameterBlock<double>&);
template class Optimizer<float>;
template class Optimizer<double>;

}  // namespace normscope
