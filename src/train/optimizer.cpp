#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/gemm/gemm.h"
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
  const auto linear = [&](double share) { return config.lr + (config.min_lr - config.lr) * share; };
  switch (config.schedule) {
    case ScheduleKind::constant:
      return config.lr;
    case ScheduleKind::linear:
      return linear(p);
    case ScheduleKind::wsd:
      return p > 1 - config.cooldown ? linear((p - 1) / config.cooldown + 1) : config.lr;
    case ScheduleKind::cosine:
      return config.min_lr + (config.lr - config.min_lr) * (1 + std::cos(std::numbers::pi * p)) / 2;
  }
  fail("schedule", "no code for schedule number ", static_cast<int>(config.schedule));
}

namespace {

// Brings the rms of Muon's directions near that of AdamW's updates (Liu et al. 2025), so that both take one
// learning rate.
constexpr double muon_scale = 0.2;

// Replaces x, whose singular value decomposition is USV', by nearly UV': five steps of the Newton-Schulz
// iteration x = (aI + bG + cG^2) x with G = xx', as in torch.optim.Muon but in the precision of Real. It
// takes singular values from 0.003 to 1 to between 0.7 and 1.2. A tall x has the smaller G = x'x on its
// right.
template <class Real>
void orthogonalise(GemmProvider provider, const Matrix<Real>& x) {
  constexpr auto a = Real(3.4445), b = Real(-4.775), c = Real(2.0315);
  constexpr auto least_norm = Real(1e-7);
  constexpr int iterations = 5;
  static_assert(iterations % 2 == 1, "the last one writes x itself");
  const bool is_tall = x.rows > x.cols;
  const Index n = std::min(x.rows, x.cols);
  struct From;
  struct Gram;
  struct Polynomial;
  Matrix<Real> from(thread_scratch<Real, From>(x.size()), x.rows, x.cols), to = x;
  const Matrix<Real> gram(thread_scratch<Real, Gram>(n * n), n, n);
  const Matrix<Real> polynomial(thread_scratch<Real, Polynomial>(n * n), n, n);

  const Real norm = std::max(least_norm, static_cast<Real>(std::sqrt(sum_squares(x.size(), x.data))));
  axpby(x.size(), 1 / norm, x.data, Real(0), from.data);
  for (int i = 0; i < iterations; ++i) {
    gemm<Real>(provider, {.a = is_tall ? from.t() : from, .b = is_tall ? from : from.t(), .c = gram});
    axpby(n * n, b / c, gram.data, Real(0), polynomial.data);
    gemm<Real>(provider, {.a = gram, .b = gram, .c = polynomial, .beta = 1});
    axpby(n * n, c, polynomial.data, Real(0), polynomial.data);
    for (Index j = 0; j < n; ++j) polynomial.data[j * n + j] += a;
    gemm<Real>(provider, {.a = is_tall ? from : polynomial, .b = is_tall ? polynomial : from, .c = to});
    std::swap(from, to);
  }
}

}  // namespace

template <class Real>
Optimizer<Real>::Optimizer(const TrainConfig& config, const ParameterLayout& layout)
    : moments{std::vector<Real>(layout.block_size()), std::vector<Real>(layout.block_size())},
      config_(config),
      layout_(layout),
      parts_(parts_of(layout)),
      sums_(parts_) {}

// Muon moves the matrices of the blocks; AdamW the embeddings, the head and all vectors.
template <class Real>
bool Optimizer<Real>::has_direction(const ParameterPart& part) const {
  const Role role = layout_[part.parameter].role;
  return config_.optimizer == OptimizerKind::muon &&
         (role == Role::qkv || role == Role::matrix || role == Role::branch_output);
}

// M = mu M + G; the direction is G + mu M, made orthogonal.
template <class Real>
void Optimizer<Real>::set_directions(Real gradient_scale, const ParameterBlock<Real>& gradients) {
  const auto mu = static_cast<Real>(config_.momentum);
  for (const ParameterPart& part : parts_) {
    if (!has_direction(part)) continue;
    const Real* gradient = gradients.all().data() + part.offset;
    Real* momentum = moments.first.data() + part.offset;
    Real* direction = moments.second.data() + part.offset;
    axpby(part.size, gradient_scale, gradient, mu, momentum);
    axpby(part.size, gradient_scale, gradient, Real(0), direction);
    axpby(part.size, mu, momentum, Real(1), direction);
    const Index cols = layout_[part.parameter].cols();
    orthogonalise<Real>(config_.gemm, {direction, part.size / cols, cols});
  }
}

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
  if (c.optimizer == OptimizerKind::muon) set_directions(static_cast<Real>(gradient_scale), gradients);
  sums_.measure(changes_, [&](const auto& block) -> WeightChange {
    const Parameter& p = layout_[parts_[block.part].parameter];
    const auto decay = static_cast<Real>(p.is_matrix() ? 1 - lr * c.weight_decay : 1.0);
    const Real* g = gradients.all().data() + block.begin;
    Real* w = parameters.all().data() + block.begin;
    Real *m = moments.first.data() + block.begin, *v = moments.second.data() + block.begin;
    if (has_direction(parts_[block.part])) {
      const Index cols = p.cols(), rows = parts_[block.part].size / cols;
      const double rate = lr * muon_scale * std::sqrt(static_cast<double>(std::max(rows, cols)));
      const MomentumStep<Real> rule{
          .gradient_scale = 1, .momentum = 0, .decay = decay, .lr = static_cast<Real>(rate)};
      return kernels<Real>().momentum_step(block.count, rule, v, w, v);
    }
    switch (c.optimizer) {
      case OptimizerKind::muon:
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
