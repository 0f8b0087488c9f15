#include "train/optimizer.h"

#include <cmath>

#include "core/error.h"
#include "core/portable_math.h"
#include "kernels/simd.h"
#include "train/muon.h"

namespace normscope {

template <class Real>
Optimizer<Real>::Optimizer(const TrainConfig& config, const ParameterLayout& layout)
    : moments{std::vector<Real>(layout.padded_size()), std::vector<Real>(layout.padded_size())},
      config_(config),
      layout_(layout),
      parts_(parts_of(layout)),
      sums_(parts_),
      directions_(config.optimizer == OptimizerKind::muon ? layout.padded_size() : 0) {}

// Muon moves the matrices of the blocks, those of queries, keys and values one by one; AdamW moves the
// embeddings, the head and all vectors.
template <class Real>
bool Optimizer<Real>::uses_muon(const ParameterPart& part) const {
  const Role role = layout_[part.parameter].role;
  return config_.optimizer == OptimizerKind::muon &&
         (role == Role::qkv || role == Role::matrix || role == Role::branch_output);
}

template <class Real>
void Optimizer<Real>::set_directions(double gradient_scale, const ParameterBuffer<Real>& gradients) {
  for (const ParameterPart& part : parts_) {
    if (!uses_muon(part)) continue;
    const Index cols = layout_[part.parameter].cols();
    muon_direction<Real>(config_, gradient_scale, gradients.all().data() + part.offset,
                         moments.first.data() + part.offset,
                         {directions_.data() + part.offset, part.size / cols, cols});
  }
}

template <class Real>
UpdateRule<Real> Optimizer<Real>::rule_of(const ParameterPart& part, Index number, double lr,
                                          double gradient_scale) const {
  const TrainConfig& c = config_;
  const Parameter& p = layout_[part.parameter];
  const auto scale = static_cast<Real>(gradient_scale);
  const auto decay = static_cast<Real>(p.has_weight_decay() ? 1 - lr * c.weight_decay : 1.0);
  if (uses_muon(part)) {
    const double rate = muon_rate(lr, part.size / p.cols(), p.cols());
    return AlongDirection<Real>{.decay = decay, .lr = static_cast<Real>(rate)};
  }
  switch (c.optimizer) {
    case OptimizerKind::adamw:
    case OptimizerKind::muon:
      return AdamW<Real>{
          .gradient_scale = scale,
          .beta1 = static_cast<Real>(c.beta1),
          .beta2 = static_cast<Real>(c.beta2),
          .one_minus_beta1 = static_cast<Real>(1 - c.beta1),
          .one_minus_beta2 = static_cast<Real>(1 - c.beta2),
          .eps = static_cast<Real>(c.adam_eps),
          .decay = decay,
          .step_size = static_cast<Real>(lr / (1 - portable::power(c.beta1, number))),
          .inv_sqrt_correction2 = static_cast<Real>(1 / std::sqrt(1 - portable::power(c.beta2, number)))};
    case OptimizerKind::sgd:
      return Sgd<Real>{.gradient_scale = scale,
                       .momentum = static_cast<Real>(c.momentum),
                       .decay = decay,
                       .lr = static_cast<Real>(lr)};
  }
  fail("optimizer", "no code for optimizer number ", static_cast<int>(c.optimizer));
}

template <class Real>
const std::vector<WeightChange>& Optimizer<Real>::update(Index number, double lr, double gradient_scale,
                                                         const ParameterBuffer<Real>& gradients,
                                                         ParameterBuffer<Real>& parameters) {
  set_directions(gradient_scale, gradients);
  sums_.measure(changes_, [&](const auto& chunk) {
    const ParameterPart& part = parts_[chunk.part];
    const std::vector<Real>& direction = uses_muon(part) ? directions_ : gradients.all();
    return kernels<Real>().update(chunk.count, rule_of(part, number, lr, gradient_scale),
                                  direction.data() + chunk.begin, parameters.all().data() + chunk.begin,
                                  moments.first.data() + chunk.begin, moments.second.data() + chunk.begin);
  });
  return changes_;
}

template class Optimizer<float>;
template class Optimizer<double>;

}  // namespace normscope
