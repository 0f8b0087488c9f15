// The naive twins: every kernel of a KernelTable written out in double with the C++ library's functions,
// serially. They are the engine's double path, and the fast kernels are tested against them; the float
// kernels also call forward_out_of_range() for the rare rows whose squares a float cannot hold. Gradients
// follow the chain rule from value to value, without formulas that cancel terms.
#include "kernels/reference/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "kernels/simd.h"

namespace normscope {
namespace reference {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// f(x) and f'(x). NaN stays NaN.
std::pair<double, double> at(Activation kind, double x) {
  switch (kind) {
    case Activation::relu:
      return x <= 0 ? std::pair(0.0, 0.0) : std::pair(x, 1.0);
    case Activation::relu2:
      return x <= 0 ? std::pair(0.0, 0.0) : std::pair(x * x, 2 * x);
    case Activation::gelu: {
      const double cdf = std::erfc(-x / std::numbers::sqrt2) / 2;
      const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
      return {x * cdf, cdf + x * density};
    }
    case Activation::gelu_tanh: {
      const double root = std::sqrt(2 / std::numbers::pi);
      const double t = std::tanh(root * (x + 0.044715 * x * x * x));
      const double dt =
          t * t == 1 ? 0 : (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);  // x² may be infinite
      return {x / 2 * (1 + t), (1 + t) / 2 + x / 2 * dt};
    }
    case Activation::silu:
      return {x * logistic(x), logistic(x) * (1 + x * (1 - logistic(x)))};
    case Activation::swiglu:
      break;
  }
  fail("activation", "number ", static_cast<int>(kind), " is no function of one number");
}

void add_into(double& out, double beta, double contribution) {
  out = (beta == 0 ? 0 : beta * out) + contribution;
}

// Run update(i) for each weight and measure their change.
template <class Update>
WeightChange measured(Index n, const double* w, Update update) {
  WeightChange total;
  for (Index i = 0; i < n; ++i) {
    const double before = w[i];
    update(i);
    total += {before * before, (w[i] - before) * (w[i] - before)};
  }
  return total;
}

void activation(Activation kind, Index n, const double* x, double* y, double* derivative) {
  for (Index i = 0; i < n; ++i) std::tie(y[i], derivative[i]) = at(kind, x[i]);
}

void swiglu_forward(Index n, const double* gate, const double* x, double* y) {
  for (Index i = 0; i < n; ++i) y[i] = at(Activation::silu, gate[i]).first * x[i];
}

void swiglu_backward(Index n, const double* gate, const double* x, const double* dy, double* dgate,
                     double gate_beta, double* dx, double beta) {
  for (Index i = 0; i < n; ++i) {
    const auto [value, derivative] = at(Activation::silu, gate[i]);
    add_into(dgate[i], gate_beta, dy[i] * x[i] * derivative);
    add_into(dx[i], beta, dy[i] * value);
  }
}

void axpby(Index n, double alpha, const double* x, double beta, double* y) {
  for (Index i = 0; i < n; ++i) add_into(y[i], beta, alpha * x[i]);
}

void axpy(Index n, double alpha, const double* a, const double* b, double* y) {
  for (Index i = 0; i < n; ++i) y[i] = alpha * a[i] + b[i];
}

void multiply(Index n, const double* a, const double* b, double* y) {
  for (Index i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

double dot(Index n, const double* a, const double* b) {
  double sum = 0;
  for (Index i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

double sum_squares(Index n, const double* x) { return dot(n, x, x); }

TensorStats tensor_stats(Index n, const double* x) {
  TensorStats s;
  for (Index i = 0; i < n; ++i) {
    s += {x[i], x[i] * x[i], std::isnan(x[i]) ? 0 : std::abs(x[i]), !std::isfinite(x[i]), 1};
  }
  return s;
}

WeightChange adamw(Index n, const AdamW<double>& step, const double* g, double* w, double* m, double* v) {
  return measured(n, w, [&](Index i) {
    const double gradient = g[i] * step.gradient_scale;
    m[i] = step.beta1 * m[i] + step.one_minus_beta1 * gradient;
    v[i] = step.beta2 * v[i] + step.one_minus_beta2 * gradient * gradient;
    const double denominator = std::sqrt(v[i]) * step.inv_sqrt_correction2 + step.eps;
    w[i] = w[i] * step.decay - step.step_size * m[i] / denominator;
  });
}

WeightChange momentum_step(Index n, const MomentumStep<double>& step, const double* g, double* w, double* v) {
  return measured(n, w, [&](Index i) {
    v[i] = step.momentum * v[i] + g[i] * step.gradient_scale;
    w[i] = w[i] * step.decay - step.lr * v[i];
  });
}

// n numbers, `stride` apart, that share a mean and a variance. Gains and biases are `gain_stride` apart: 1,
// or 0 where one is for all.
struct Group {
  Index n, stride, gain_stride;
  bool centred;
  double eps;
  bool eps_outside;
  bool detached = false;  // mean and rstd are constants to the backward
};

struct Statistics {
  double mean, variance, rstd;
};

template <class Real>
Statistics statistics(const Group& g, const Real* x) {
  double sum = 0, mean = 0, rest = 0, squares = 0;
  const double n = static_cast<double>(g.n);
  if (g.centred) {
    // The mean of the group.
    for (Index i = 0; i < g.n; ++i) sum += x[i * g.stride];
    mean = sum / n;
    // What remains about the mean is its rounding error, which corrects it.
    for (Index i = 0; i < g.n; ++i) rest += x[i * g.stride] - mean;
    mean += rest / n;
  }
  // The biased variance: the mean of the squares about the mean.
  for (Index i = 0; i < g.n; ++i) squares += (x[i * g.stride] - mean) * (x[i * g.stride] - mean);
  const double variance = squares / n;
  return {mean, variance, 1 / (g.eps_outside ? std::sqrt(variance) + g.eps : std::sqrt(variance + g.eps))};
}

// The chain rule through x̂ = (x - mean) rstd, rstd(var), var = sum (x - mean)²/n, mean = sum x/n. The
// pointers of `to` are those of the group.
void backward(const Group& g, const double* x, double mean, double rstd, const double* gain,
              const NormGradients<double>& to) {
  const double n = static_cast<double>(g.n);
  double sum_dnormed = 0, drstd = 0, sum_centred = 0;
  // y = gain x̂ + bias gives dx̂, dgain and dbias; x̂ = centred rstd gives drstd.
  for (Index i = 0; i < g.n; ++i) {
    const Index at = i * g.stride, c = i * g.gain_stride;
    const double centred = x[at] - mean, dnormed = to.dy[at] * (gain != nullptr ? gain[c] : 1);
    sum_dnormed += dnormed;
    drstd += dnormed * centred;
    sum_centred += centred;
    if (to.dgain != nullptr) to.dgain[c] += to.dy[at] * centred * rstd;
    if (to.dbias != nullptr) to.dbias[c] += to.dy[at];
  }
  // Epsilon outside: rstd = 1/(sigma + eps). In a constant group sigma is 0, and so is dvar/dx.
  const double sigma = 1 / rstd - g.eps;
  const double drstd_dvar = !g.eps_outside ? -rstd * rstd * rstd / 2
                            : sigma > 0    ? -rstd * rstd / (2 * sigma)
                                           : 0;
  // rstd depends on the variance, and the mean enters every x̂ and the variance. A detached norm has neither
  // term.
  const double dvar = g.detached ? 0 : drstd * drstd_dvar;
  const double dmean = g.centred && !g.detached ? -rstd * sum_dnormed - dvar * 2 * sum_centred / n : 0;
  // x reaches y in three ways: through its own x̂, through the variance, through the mean.
  for (Index i = 0; i < g.n; ++i) {
    const Index at = i * g.stride;
    const double dnormed = to.dy[at] * (gain != nullptr ? gain[i * g.gain_stride] : 1);
    const double d = dnormed * rstd + dvar * 2 * (x[at] - mean) / n + dmean / n;
    to.dx[at] = (to.beta == 0 ? 0 : to.beta * to.dx[at]) + d;
  }
}

// The part of a vector that belongs to a group; null stays null.
template <class Number>
Number* from(Number* vector, Index offset) {
  return vector != nullptr ? vector + offset : nullptr;
}

NormGradients<double> from(const NormGradients<double>& all, Index element, Index feature) {
  NormGradients<double> part = all;
  part.dy += element, part.dx += element;
  part.dgain = from(all.dgain, feature), part.dbias = from(all.dbias, feature);
  return part;
}

// Group i of a norm, at which its statistics are saved: its first element and feature.
struct Part {
  Group group;
  Index element, feature;
};
template <class Real>
Part part(const LayerNorm<Real>& norm, Index i) {
  const Index width = norm.cols / norm.groups, first = i % norm.groups * width;
  return {{width, 1, 1, norm.centred, norm.eps, norm.eps_outside, norm.detached},
          i / norm.groups * norm.stride + first,
          norm.shared_gain ? 0 : first};
}
template <class Real>
Part part(const BatchNorm<Real>& norm, Index i) {
  const Index column = i % norm.cols;
  return {{norm.group_rows, norm.cols, 0, true, norm.eps, norm.eps_outside},
          i / norm.cols * norm.group_rows * norm.cols + column,
          column};
}

// Call body(i) for each group of rows, or of columns.
template <class Real, class Body>
void each_group(const LayerNorm<Real>& norm, Index begin, Index end, Body body) {
  for (Index i = begin * norm.groups; i < end * norm.groups; ++i) body(i);
}
template <class Real, class Body>
void each_group(const BatchNorm<Real>& norm, Index begin, Index end, Body body) {
  for (Index i = 0; i < norm.rows / norm.group_rows; ++i) {
    for (Index c = begin; c < end; ++c) body(i * norm.cols + c);
  }
}

template <class Norm, class Real>
void forward_group(const Norm& norm, Index i, Real* y) {
  const auto [group, element, feature] = part(norm, i);
  const Real *gain = from(norm.gain, feature), *bias = from(norm.bias, feature);
  const Statistics s = statistics(group, norm.x + element);
  // Each number of the group: less the mean, times rstd, times its gain, plus its bias.
  for (Index k = 0; k < group.n; ++k) {
    const Index at = element + k * group.stride, c = k * group.gain_stride;
    y[at] = static_cast<Real>((norm.x[at] - s.mean) * s.rstd * (gain != nullptr ? gain[c] : 1) +
                              (bias != nullptr ? bias[c] : 0));
  }
  norm.mean[i] = static_cast<Real>(s.mean);
  norm.rstd[i] = static_cast<Real>(s.rstd);
  if constexpr (requires { norm.variance; }) norm.variance[i] = static_cast<Real>(s.variance);
}

template <class Norm>
void forward_groups(const Norm& norm, Index begin, Index end, double* y) {
  each_group(norm, begin, end, [&](Index i) { forward_group(norm, i, y); });
}

template <class Norm>
void backward_groups(const Norm& norm, const NormGradients<double>& gradients, Index begin, Index end) {
  each_group(norm, begin, end, [&](Index i) {
    const auto [group, element, feature] = part(norm, i);
    backward(group, norm.x + element, norm.mean[i], norm.rstd[i], from(norm.gain, feature),
             from(gradients, element, feature));
  });
}

// f and f' of alpha x + shift.
std::pair<double, double> squashed(const PointwiseNorm<double>& norm, double x) {
  const double u = norm.alpha * x + norm.shift;
  if (norm.function == PointwiseFn::erf)
    return {std::erf(u), 2 / std::sqrt(std::numbers::pi) * std::exp(-u * u)};
  return {std::tanh(u), 1 / (std::cosh(u) * std::cosh(u))};
}

void pointwise_norm_forward(const PointwiseNorm<double>& norm, Index begin, Index end, double* y) {
  for (Index i = begin * norm.cols; i < end * norm.cols; ++i) {
    const Index c = i % norm.cols;
    y[i] = (norm.gain != nullptr ? norm.gain[c] : 1) * squashed(norm, norm.x[i]).first +
           (norm.bias != nullptr ? norm.bias[c] : 0);
  }
}

void pointwise_norm_backward(const PointwiseNorm<double>& norm, const NormGradients<double>& gradients,
                             Index begin, Index end) {
  const auto& [dy, dx, beta, dgain, dbias, dalpha, dshift] = gradients;
  for (Index i = begin * norm.cols; i < end * norm.cols; ++i) {
    const Index c = i % norm.cols;
    const auto [value, derivative] = squashed(norm, norm.x[i]);
    const double g = dy[i] * (norm.gain != nullptr ? norm.gain[c] : 1) * derivative;
    dx[i] = (beta == 0 ? 0 : beta * dx[i]) + norm.alpha * g;
    if (dalpha != nullptr) *dalpha += g * norm.x[i];
    if (dshift != nullptr) *dshift += g;
    if (dgain != nullptr) dgain[c] += dy[i] * value;
    if (dbias != nullptr) dbias[c] += dy[i];
  }
}

void softmax_stats(Index n, const double* x, double* max, double* sum) {
  *max = *std::max_element(x, x + n);
  *sum = 0;
  for (Index i = 0; i < n; ++i) *sum += std::exp(x[i] - *max);
}

void add_exponentials(Index n, const double* x, double max, double factor, double* dx, double beta) {
  for (Index i = 0; i < n; ++i) dx[i] = (beta == 0 ? 0 : beta * dx[i]) + factor * std::exp(x[i] - max);
}

}  // namespace

void forward_columns(const BatchNorm<double>& norm, Index begin, Index end, double* y) {
  forward_groups(norm, begin, end, y);
}

template <class Norm>
void forward_out_of_range(const Norm& norm, Index begin, Index end, float* y) {
  constexpr float largest = std::numeric_limits<float>::max(), largest_rstd = 0x1p56f;
  each_group(norm, begin, end, [&](Index i) {
    const float mean = norm.mean[i], rstd = norm.rstd[i];
    if (!(std::abs(mean) <= largest && rstd > 0 && rstd < largest_rstd)) forward_group(norm, i, y);
  });
}
template void forward_out_of_range(const LayerNorm<float>&, Index, Index, float*);
template void forward_out_of_range(const BatchNorm<float>&, Index, Index, float*);

void backward_columns(const BatchNorm<double>& norm, const NormGradients<double>& gradients, Index begin,
                      Index end) {
  backward_groups(norm, gradients, begin, end);
}

}  // namespace reference

template <>
const KernelTable<double>& kernels<double>() {
  using namespace reference;
  static constexpr KernelTable<double> twins = {
      .layer_norm_forward = forward_groups,
      .layer_norm_backward = backward_groups,
      .pointwise_norm_forward = pointwise_norm_forward,
      .pointwise_norm_backward = pointwise_norm_backward,
      .softmax_stats = softmax_stats,
      .add_exponentials = add_exponentials,
      .activation = activation,
      .swiglu_forward = swiglu_forward,
      .swiglu_backward = swiglu_backward,
      .axpby = axpby,
      .axpy = axpy,
      .multiply = multiply,
      .dot = dot,
      .sum_squares = sum_squares,
      .tensor_stats = tensor_stats,
      .adamw = adamw,
      .momentum_step = momentum_step,
  };
  return twins;
}

}  // namespace normscope
