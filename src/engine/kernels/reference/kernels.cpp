// The naive twins: every kernel of a KernelTable written out in double with the C++ library's functions,
// serially. They are the engine's double path, and the fast kernels are tested against them; the float
// kernels also call layer_norm_group() for the rare rows whose squares a float cannot hold. Gradients
// follow the chain rule from value to value, without formulas that cancel terms.
#include "kernels/reference/kernels.h"

#include <algorithm>
#include <cmath>
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

void add_scaled(Index n, double alpha, const double* a, const double* b, double* y) {
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

WeightChange update(Index n, const UpdateRule<double>& any_rule, const double* g, double* w, double* m,
                    double* v) {
  WeightChange total;
  for (Index i = 0; i < n; ++i) {
    const double before = w[i];
    std::visit([&](const auto& rule) { rule(g[i], w[i], m[i], v[i]); }, any_rule);
    total += {before * before, (w[i] - before) * (w[i] - before)};
  }
  return total;
}

// A group of features of a row that share a mean and a variance: `width` numbers from `first` on, whose gains
// and biases are those from `feature` on. Its mean and rstd are number `statistic`.
struct Group {
  Index width, first, feature, statistic;
};
template <class Real>
Group group_of(const LayerNorm<Real>& norm, Index row, Index group) {
  const Index width = norm.cols / norm.groups;
  return {width, row * norm.stride + group * width, norm.shared_gain ? 0 : group * width,
          row * norm.groups + group};
}

template <class Real>
void forward_group(const LayerNorm<Real>& norm, Index row, Index group, Real* y) {
  const auto [width, first, feature, statistic] = group_of(norm, row, group);
  const Real* x = norm.x + first;
  double sum = 0, mean = 0, rest = 0, squares = 0;
  const double n = static_cast<double>(width);
  if (norm.centred) {
    // The mean of the group.
    for (Index i = 0; i < width; ++i) sum += x[i];
    mean = sum / n;
    // The mean of the differences from it is its rounding error, which corrects it.
    for (Index i = 0; i < width; ++i) rest += x[i] - mean;
    mean += rest / n;
  }
  // The biased variance: the mean of the squares about the mean.
  for (Index i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double variance = squares / n, eps = norm.eps;
  const double rstd = 1 / (norm.eps_outside ? std::sqrt(variance) + eps : std::sqrt(variance + eps));
  // Each number of the group: less the mean, times rstd, times its gain, plus its bias.
  for (Index i = 0; i < width; ++i) {
    const double gain = norm.gain != nullptr ? norm.gain[feature + i] : 1;
    const double bias = norm.bias != nullptr ? norm.bias[feature + i] : 0;
    y[first + i] = static_cast<Real>((x[i] - mean) * rstd * gain + bias);
  }
  norm.mean[statistic] = static_cast<Real>(mean);
  norm.rstd[statistic] = static_cast<Real>(rstd);
}

// The chain rule through x̂ = (x - mean) rstd, rstd(var), var = sum (x - mean)²/n, mean = sum x/n.
void backward_group(const LayerNorm<double>& norm, const NormGradients<double>& to, Index row, Index group) {
  const auto [width, first, feature, statistic] = group_of(norm, row, group);
  const double *x = norm.x + first, *dy = to.dy + first;
  const double n = static_cast<double>(width), mean = norm.mean[statistic], rstd = norm.rstd[statistic];
  const auto gain = [&, at = feature](Index i) { return norm.gain != nullptr ? norm.gain[at + i] : 1; };
  double sum_dnormed = 0, drstd = 0, sum_centred = 0;
  // y = gain x̂ + bias gives dx̂, dgain and dbias; x̂ = centred rstd gives drstd.
  for (Index i = 0; i < width; ++i) {
    const double centred = x[i] - mean, dnormed = dy[i] * gain(i);
    sum_dnormed += dnormed;
    drstd += dnormed * centred;
    sum_centred += centred;
    if (to.dgain != nullptr) to.dgain[feature + i] += dy[i] * centred * rstd;
    if (to.dbias != nullptr) to.dbias[feature + i] += dy[i];
  }
  // Epsilon outside: rstd = 1/(sigma + eps). In a constant group sigma is 0, and so is dvar/dx.
  const double sigma = 1 / rstd - norm.eps;
  const double drstd_dvar = !norm.eps_outside ? -rstd * rstd * rstd / 2
                            : sigma > 0       ? -rstd * rstd / (2 * sigma)
                                              : 0;
  // rstd depends on the variance, and the mean enters every x̂ and the variance. A detached norm has neither
  // term.
  const double dvar = norm.detached ? 0 : drstd * drstd_dvar;
  const double dmean = norm.centred && !norm.detached ? -rstd * sum_dnormed - dvar * 2 * sum_centred / n : 0;
  // x reaches y in three ways: through its own x̂, through the variance, through the mean.
  for (Index i = 0; i < width; ++i) {
    const double dx = dy[i] * gain(i) * rstd + dvar * 2 * (x[i] - mean) / n + dmean / n;
    add_into(to.dx[first + i], to.beta, dx);
  }
}

void layer_norm_forward(const LayerNorm<double>& norm, Index begin, Index end, double* y) {
  for (Index row = begin; row < end; ++row) {
    for (Index group = 0; group < norm.groups; ++group) forward_group(norm, row, group, y);
  }
}

void layer_norm_backward(const LayerNorm<double>& norm, const NormGradients<double>& gradients, Index begin,
                         Index end) {
  for (Index row = begin; row < end; ++row) {
    for (Index group = 0; group < norm.groups; ++group) backward_group(norm, gradients, row, group);
  }
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
    add_into(dx[i], beta, norm.alpha * g);
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
  for (Index i = 0; i < n; ++i) add_into(dx[i], beta, factor * std::exp(x[i] - max));
}

}  // namespace

void layer_norm_group(const LayerNorm<float>& norm, Index row, Index group, float* y) {
  forward_group(norm, row, group, y);
}

}  // namespace reference

template <>
const KernelTable<double>& kernels<double>() {
  using namespace reference;
  static constexpr KernelTable<double> twins = {
      .layer_norm_forward = layer_norm_forward,
      .layer_norm_backward = layer_norm_backward,
      .pointwise_norm_forward = pointwise_norm_forward,
      .pointwise_norm_backward = pointwise_norm_backward,
      .softmax_stats = softmax_stats,
      .add_exponentials = add_exponentials,
      .activation = activation,
      .swiglu_forward = swiglu_forward,
      .swiglu_backward = swiglu_backward,
      .axpby = axpby,
      .add_scaled = add_scaled,
      .multiply = multiply,
      .dot = dot,
      .sum_squares = sum_squares,
      .tensor_stats = tensor_stats,
      .update = update,
  };
  return twins;
}

}  // namespace normscope
