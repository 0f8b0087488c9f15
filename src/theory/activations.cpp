#include "theory/activations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "model/transformer.h"

namespace normscope {
namespace {

using std::numbers::pi;

constexpr std::size_t orders = 40;   // of the series; what is left of E f^2 goes with rho^40
constexpr std::size_t points = 321;  // z = -8, -7.95, ..., 8
constexpr double width = 8.0, smallest = 1e-300;

using Coefficients = std::array<double, orders + 1>;  // the last: of rho^40

struct Quadrature {
  std::array<double, points> z;
  std::array<std::array<double, points>, orders> hermite;  // times the weight of z

  Quadrature() {
    const double step = 2 * width / (points - 1);
    for (std::size_t i = 0; i < points; ++i) {
      z[i] = -width + step * static_cast<double>(i);
      hermite[0][i] = step * std::exp(-z[i] * z[i] / 2) / std::sqrt(2 * pi);
      hermite[1][i] = z[i] * hermite[0][i];
      for (std::size_t n = 2; n < orders; ++n) {
        const double order = static_cast<double>(n);
        hermite[n][i] =
            (z[i] * hermite[n - 1][i] - std::sqrt(order - 1) * hermite[n - 2][i]) / std::sqrt(order);
      }
    }
  }

  // E f(z)^2 of features of this excess kurtosis.
  double mean_square(const std::array<double, points>& f, double excess) const {
    double sum = 0;
    for (std::size_t i = 0; i < points; ++i)
      sum += (hermite[0][i] + excess / std::sqrt(24) * hermite[4][i]) * f[i] * f[i];
    return sum;
  }

  Coefficients of(const std::array<double, points>& f, double excess) const {
    Coefficients a{};
    const double square = mean_square(f, 0);
    double left = square;
    for (std::size_t n = 0; n < orders; ++n) {
      for (std::size_t i = 0; i < points; ++i) a[n] += hermite[n][i] * f[i];
      left -= a[n] * a[n];
    }
    a[orders] = std::sqrt(std::max(left, 0.0));
    if (excess != 0) {
      const double factor = std::sqrt(mean_square(f, excess) / square);
      for (double& value : a) value *= factor;
    }
    return a;
  }
};

double series(const Coefficients& a, const Coefficients& b, double rho) {
  double sum = a[orders] * b[orders];
  for (std::size_t n = orders; n-- > 0;) sum = sum * rho + a[n] * b[n];
  return sum;
}

double correlation(const Kernel& k, Index t, Index s) {
  return t == s ? 1 : std::clamp(k(t, s) / std::sqrt(std::max(k(t, t) * k(s, s), smallest)), -1.0, 1.0);
}

Response relu_response(const Kernel& k) {
  Response response;
  for (Index t = 0; t < k.size; ++t) {
    response.mean.push_back(std::sqrt(k(t, t) / (2 * pi)));
    response.gain.push_back(0.5);
  }
  response.slope =
      Kernel(k.size, [&](Index t, Index s) { return (pi - std::acos(correlation(k, t, s))) / (2 * pi); });
  response.value = Kernel(k.size, [&](Index t, Index s) {
    const double rho = correlation(k, t, s);
    return std::sqrt(k(t, t) * k(s, s)) * (std::sqrt(1 - rho * rho) / (2 * pi) + response.slope(t, s) * rho);
  });
  return response;
}

}  // namespace

Response smooth_response(const Kernel& argument, const PointwiseFunction& f, double excess) {
  static const Quadrature quadrature;
  std::vector<Coefficients> value, slope;
  Response response;
  for (Index t = 0; t < argument.size; ++t) {
    const double q = std::max(argument(t, t), smallest), sd = std::sqrt(q);
    if (t > 0 && std::abs(q / argument(t - 1, t - 1) - 1) < 1e-13) {  // as after a norm
      value.push_back(value.back());
      slope.push_back(slope.back());
    } else {
      std::array<double, points> u, y, derivative;
      for (std::size_t i = 0; i < points; ++i) u[i] = sd * quadrature.z[i];
      f(points, u.data(), y.data(), derivative.data());
      value.push_back(quadrature.of(y, excess));
      slope.push_back(quadrature.of(derivative, excess));
      const double square = quadrature.mean_square(y, excess);
      std::array<double, points> relative;  // y^4 alone may underflow
      for (std::size_t p = 0; p < points; ++p) relative[p] = y[p] * y[p] / square;
      response.excess = quadrature.mean_square(relative, excess) - 3;
    }
    response.mean.push_back(value.back()[0]);
    response.gain.push_back(slope.back()[0]);
  }
  const auto kernel = [&](const std::vector<Coefficients>& a) {
    return Kernel(argument.size,
                  [&](Index t, Index s) { return series(a[t], a[s], correlation(argument, t, s)); });
  };
  response.value = kernel(value);
  response.slope = kernel(slope);
  return response;
}

PointwiseFunction activation_function(Activation activation) {
  return [kind = activation_kind(activation)](Index n, const double* x, double* y, double* derivative) {
    normscope::activation(kind, n, x, y, derivative);
  };
}

Response hidden_response(Activation activation, const Kernel& argument) {
  if (activation == Activation::relu) return relu_response(argument);
  if (activation != Activation::swiglu) return smooth_response(argument, activation_function(activation));
  // silu(gate) * in, gate and in independent and of one kernel: a gradient comes back through both.
  Response response = smooth_response(argument, activation_function(Activation::silu));
  (response.slope *= argument) += response.value;
  response.value *= argument;
  response.mean.assign(response.mean.size(), 0);
  return response;
}

}  // namespace normscope
