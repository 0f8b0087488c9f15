#include "train/optimizer.h"

#include <cmath>

#include "core/error.h"
#include "kernels/pointwise.h"

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

template <class Real>
const std::vector<WeightChange>& Optimizer<Real>::update(Index step, double lr, double gradient_scale,
                                                         const ParameterBlock<Real>& gradients,
                                                         ParameterBlock<Real>& parameters) {
  changes_.clear();  // keeps its room
  const double t = static_cast<double>(step);
  const double correction1 = 1 - std::pow(config_.beta1, t), correction2 = 1 - std::pow(config_.beta2, t);
  for (const Parameter& p : layout_.list()) {
    if (!p.trainable) {  // running statistics: their gradient holds what the step's batches change them by
      const Real *w = parameters.at(p), *change = gradients.at(p);
      changes_.push_back({sum_squares(p.size, w), sum_squares(p.size, change)});
      axpby(p.size, Real(1), change, Real(1), parameters.at(p));
      continue;
    }
    const double decay = p.is_matrix() ? 1 - lr * config_.weight_decay : 1.0;
    switch (config_.optimizer) {
      case OptimizerKind::adamw: {
        const AdamW<Real> adam{static_cast<Real>(gradient_scale),
                               static_cast<Real>(config_.beta1),
                               static_cast<Real>(config_.beta2),
                               static_cast<Real>(1 - config_.beta1),
                               static_cast<Real>(1 - config_.beta2),
                               static_cast<Real>(config_.adam_eps),
                               static_cast<Real>(decay),
                               static_cast<Real>(lr / correction1),
                               static_cast<Real>(1 / std::sqrt(correction2))};
        changes_.push_back(
            adamw(p.size, adam, gradients.at(p), parameters.at(p), first_moment.at(p), second_moment.at(p)));
        continue;
      }
      case OptimizerKind::sgd: {
        const Sgd<Real> rule{static_cast<Real>(gradient_scale), static_cast<Real>(config_.momentum),
                             static_cast<Real>(decay), static_cast<Real>(lr)};
        changes_.push_back(sgd(p.size, rule, gradients.at(p), parameters.at(p), first_moment.at(p)));
        continue;
      }
    }
    fail("optimizer", "no code for optimizer number ", static_cast<int>(config_.optimizer));
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
