#include "kernels/reference/rows.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace normscope::reference {
namespace {

// n numbers, `stride` apart, that share a mean and a variance. Gains and biases are `gain_stride` apart: 1,
// or 0 where one is for all.
struct Group {
  Index n, stride, gain_stride;
  bool centred;
  double eps;
  bool eps_outside;
};

struct Statistics {
  double mean, variance, rstd;
};

Statistics statistics(const Group& g, const double* x) {
  double sum = 0, mean = 0, rest = 0, squares = 0;
  const double n = static_cast<double>(g.n);
  if (g.centred) {
    for (Index i = 0; i < g.n; ++i) sum += x[i * g.stride];
    mean = sum / n;
    for (Index i = 0; i < g.n; ++i) rest += x[i * g.stride] - mean;
    mean += rest / n;  // what rounding left of it
  }
  for (Index i = 0; i < g.n; ++i) squares += (x[i * g.stride] - mean) * (x[i * g.stride] - mean);
  const double variance = squares / n;
  return {mean, variance, 1 / (g.eps_outside ? std::sqrt(variance) + g.eps : std::sqrt(variance + g.eps))};
}

Statistics forward(const Group& g, const double* x, const double* gain, const double* bias, double* y) {
  const Statistics s = statistics(g, x);
  for (Index i = 0; i < g.n; ++i) {
    const Index c = i * g.gain_stride;
    y[i * g.stride] = (x[i * g.stride] - s.mean) * s.rstd * (gain != nullptr ? gain[c] : 1) +
                      (bias != nullptr ? bias[c] : 0);
  }
  return s;
}

// The chain rule through x̂ = (x - mean) rstd, rstd(var), var = sum (x - mean)²/n, mean = sum x/n. The
// pointers of `to` are those of the group.
void backward(const Group& g, const double* x, double mean, double rstd, const double* gain,
              const NormGradients<double>& to) {
  const double n = static_cast<double>(g.n);
  double sum_dnormed = 0, drstd = 0, sum_centred = 0;
  for (Index i = 0; i < g.n; ++i) {
    const Index at = i * g.stride, c = i * g.gain_stride;
    const double centred = x[at] - mean, dnormed = to.dy[at] * (gain != nullptr ? gain[c] : 1);
    sum_dnormed += dnormed;
    drstd += dnormed * centred;
    sum_centred += centred;
    if (to.dgain != nullptr) to.dgain[c] += to.dy[at] * centred * rstd;
    if (to.dbias != nullptr) to.dbias[c] += to.dy[at];
  }
  // With eps outside, rstd = 1/(sigma + eps); of a constant group, sigma = 0, dvar/dx is 0 anyway.
  const double sigma = 1 / rstd - g.eps;
  const double drstd_dvar = !g.eps_outside ? -rstd * rstd * rstd / 2
                            : sigma > 0    ? -rstd * rstd / (2 * sigma)
                                           : 0;
  const double dvar = drstd * drstd_dvar;
  const double dmean = g.centred ? -rstd * sum_dnormed - dvar * 2 * sum_centred / n : 0;
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

// Calls body(group, first element, first feature, place of the statistics) for each group of the rows.
template <class Body>
void each_group(const LayerNorm<double>& norm, Index begin, Index end, Body body) {
  const Index width = norm.cols / norm.groups;
  const Group group{width, 1, 1, norm.centred, norm.eps, norm.eps_outside};
  for (Index i = begin * norm.groups; i < end * norm.groups; ++i) {
    const Index first = i % norm.groups * width;
    body(group, i / norm.groups * norm.stride + first, norm.shared_gain ? 0 : first, i);
  }
}
template <class Body>
void each_group(const BatchNorm<double>& norm, Index begin, Index end, Body body) {
  const Group group{norm.group_rows, norm.cols, 0, true, norm.eps, norm.eps_outside};
  for (Index i = 0; i < norm.rows / norm.group_rows; ++i) {
    for (Index c = begin; c < end; ++c) {
      body(group, i * norm.group_rows * norm.cols + c, c, i * norm.cols + c);
    }
  }
}

template <class Norm>
void backward_groups(const Norm& norm, const NormGradients<double>& gradients, Index begin, Index end) {
  each_group(norm, begin, end, [&](const Group& group, Index at, Index feature, Index saved) {
    backward(group, norm.x + at, norm.mean[saved], norm.rstd[saved], from(norm.gain, feature),
             from(gradients, at, feature));
  });
}

}  // namespace

void layer_norm_forward(const LayerNorm<double>& norm, Index begin, Index end, double* y) {
  each_group(norm, begin, end, [&](const Group& group, Index at, Index feature, Index saved) {
    const Statistics s = forward(group, norm.x + at, from(norm.gain, feature), from(norm.bias, feature),
                                 y + at - begin * norm.stride);
    norm.mean[saved] = s.mean;
    norm.rstd[saved] = s.rstd;
  });
}

void layer_norm_backward(const LayerNorm<double>& norm, const NormGradients<double>& gradients, Index begin,
                         Index end) {
  backward_groups(norm, gradients, begin, end);
}

void forward_columns(const BatchNorm<double>& norm, Index begin, Index end, double* y) {
  each_group(norm, begin, end, [&](const Group& group, Index at, Index feature, Index saved) {
    const Statistics s =
        forward(group, norm.x + at, from(norm.gain, feature), from(norm.bias, feature), y + at);
    norm.mean[saved] = s.mean;
    norm.variance[saved] = s.variance;
    norm.rstd[saved] = s.rstd;
  });
}

void backward_columns(const BatchNorm<double>& norm, const NormGradients<double>& gradients, Index begin,
                      Index end) {
  backward_groups(norm, gradients, begin, end);
}

namespace {

// f and f' of alpha x + shift.
std::pair<double, double> squashed(const PointwiseNorm<double>& norm, double x) {
  const double u = norm.alpha * x + norm.shift;
  if (norm.squash == Squash::erf) return {std::erf(u), 2 / std::sqrt(std::numbers::pi) * std::exp(-u * u)};
  return {std::tanh(u), 1 / (std::cosh(u) * std::cosh(u))};
}

}  // namespace

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

}  // namespace normscope::reference
