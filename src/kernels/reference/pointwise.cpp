#include "kernels/reference/pointwise.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace normscope::reference {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// f(x) and f'(x). NaN stays NaN.
std::pair<double, double> at(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::relu:
      return x <= 0 ? std::pair(0.0, 0.0) : std::pair(x, 1.0);
    case ActivationKind::gelu: {
      const double cdf = std::erfc(-x / std::numbers::sqrt2) / 2;
      const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
      return {x * cdf, cdf + x * density};
    }
    case ActivationKind::gelu_tanh: {
      const double root = std::sqrt(2 / std::numbers::pi);
      const double t = std::tanh(root * (x + 0.044715 * x * x * x));
      const double dt =
          t * t == 1 ? 0 : (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);  // x² may be infinite
      return {x / 2 * (1 + t), (1 + t) / 2 + x / 2 * dt};
    }
    case ActivationKind::silu:
      return {x * logistic(x), logistic(x) * (1 + x * (1 - logistic(x)))};
  }
  fail("activation", "no code for number ", static_cast<int>(kind));
}

void add_into(double& out, double beta, double contribution) {
  out = (beta == 0 ? 0 : beta * out) + contribution;
}

// Runs update(i) for each weight, and measures what it does to them.
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

}  // namespace

void activation(ActivationKind kind, Index n, const double* x, double* y, double* derivative) {
  for (Index i = 0; i < n; ++i) std::tie(y[i], derivative[i]) = at(kind, x[i]);
}

void swiglu_forward(Index n, const double* gate, const double* x, double* y) {
  for (Index i = 0; i < n; ++i) y[i] = at(ActivationKind::silu, gate[i]).first * x[i];
}

void swiglu_backward(Index n, const double* gate, const double* x, const double* dy, double* dgate,
                     double gate_beta, double* dx, double beta) {
  for (Index i = 0; i < n; ++i) {
    const auto [value, derivative] = at(ActivationKind::silu, gate[i]);
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

TensorStats column_stats(Index rows, Index cols, const double* x, double* squares) {
  for (Index i = 0; i < rows * cols; ++i) squares[i % cols] += x[i] * x[i];
  return tensor_stats(rows * cols, x);
}

double sum_cosines(Index rows, Index cols, const double* a, const double* b) {
  double sum = 0;
  for (const double* end = a + rows * cols; a < end; a += cols, b += cols) {
    sum += dot(cols, a, b) / std::sqrt(sum_squares(cols, a) * sum_squares(cols, b));
  }
  return sum;
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

}  // namespace normscope::reference
