// The activations, and the vectorised exp, normal tail and tanh, over fine grids.
#include "helpers.h"
#include "kernels/pointwise.h"
#include "kernels/rows.h"
#include "kernels/simd.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

constexpr Activation kinds[] = {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu};

// -40 ... 40, finest around 0, and far tails.
std::vector<float> grid() {
  std::vector<float> x = {0, -0.0f, 1e-30f, -1e-30f, 100, -100, 1000, -1000, 1e6f, -1e6f, 1e15f, -1e15f};
  for (int i = -40000; i <= 40000; ++i) x.push_back(static_cast<float>(i * 1e-3 + 1e-4));
  for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<float>(i * 1e-5));
  return x;
}

// The worst error relative to max(|expected|, floor(x)).
template <class Real, class Expected, class Floor>
double worst_error(const std::vector<Real>& x, const std::vector<Real>& y, Expected expected, Floor floor) {
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = expected(x[i]);
    const double error = std::abs(y[i] - want) / std::max({std::abs(want), floor(double{x[i]}), 1e-300});
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) return worst;
  }
  return worst;
}

float exponential(float x) {
  float y = 0;
  kernels<float>().add_exponentials(1, &x, 0, 1, &y, 0);
  return y;
}

}  // namespace

TEST_CASE("kernel: exp of a float is good to 1e-7 relative, and 0 or infinite beyond its range") {
  double worst = 0;
  for (int i = -87000; i <= 87900; ++i) {
    const float x = static_cast<float>(i) * 1e-3f;
    const double want = std::exp(double{x});
    const double error = std::abs(exponential(x) - want) / want;
    if (!(error <= worst)) worst = error;
  }
  CHECK(worst <= 1e-7);
  CHECK(exponential(0.0f) == 1.0f);
  CHECK(exponential(-87.34f) == 0.0f);  // no subnormal numbers: they would slow down what reads them
  CHECK(exponential(-88.0f) == 0.0f);
  CHECK(exponential(-1e30f) == 0.0f);
  CHECK(exponential(-std::numeric_limits<float>::infinity()) == 0.0f);
  for (const float x : {89.0f, 1000.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    CHECK(exponential(x) == std::numeric_limits<float>::infinity());
  }
  CHECK(exponential(88.0f) >= 1.6e38f);
  for (const char* payload : {"", "1", "0x12345"}) CHECK(std::isnan(exponential(std::nanf(payload))));
}

TEST_CASE("kernel: activations equal the library's, value and derivative") {
  const std::vector<float> x = grid();
  const auto n = static_cast<Index>(x.size());
  for (const Activation kind : kinds) {
    std::vector<float> y = nans<float>(n), derivative = nans<float>(n);
    activation(kind, n, x.data(), y.data(), derivative.data());
    const auto value_of = [&](float v) { return activation_value(kind, v); };
    const auto derivative_of = [&](float v) { return activation_derivative(kind, v); };
    // In the negative tail a value is x times a number that need only be small against 1.
    const auto value_floor = [](double v) { return std::abs(v); };
    const auto derivative_floor = [](double) { return 1.0; };
    CAPTURE(static_cast<int>(kind));
    CHECK(worst_error(x, y, value_of, value_floor) <= 5e-7);
    CHECK(worst_error(x, derivative, derivative_of, derivative_floor) <= 2e-6);
  }
}

TEST_CASE("kernel: the tail of gelu is relatively accurate too") {
  std::vector<float> x;
  for (int i = 0; i <= 100000; ++i) x.push_back(static_cast<float>(-i) * 1e-4f);
  std::vector<float> y(x.size()), derivative(x.size());
  activation(Activation::gelu, static_cast<Index>(x.size()), x.data(), y.data(), derivative.data());
  double worst = 0;
  for (std::size_t i = 1; i < x.size(); ++i) {
    const double want = activation_value(Activation::gelu, x[i]);
    // exp(-x^2/2) passes on the rounding of its argument, x^2/2 times as large.
    const double error = std::abs(y[i] - want) / std::abs(want) / (1 + double{x[i]} * x[i] / 10);
    if (!(error <= worst)) worst = error;
  }
  CHECK(worst <= 1e-6);
}

TEST_CASE("kernel: gelu_tanh near 0 is relatively accurate") {
  for (const float x : {1e-3f, 1e-2f, 0.1f, 0.24f, 0.26f, 0.3f, 0.31f, 0.32f, 0.5f}) {
    for (const float signed_x : {x, -x}) {
      float y = 0, derivative = 0;
      activation<float>(Activation::gelu_tanh, 1, &signed_x, &y, &derivative);
      const double want = activation_value(Activation::gelu_tanh, signed_x);
      CHECK(std::abs(y - want) <= 2e-7 * std::abs(want));
    }
  }
}

TEST_CASE("kernel: tanh of a float is good to 2e-7 relative, never beyond 1, and 1 where it rounds to it") {
  std::vector<float> x = {1e-30f, 1e-10f};
  for (int i = 1; i <= 120000; ++i) x.push_back(static_cast<float>(i) * 1e-4f);
  for (const float far : {1e3f, 1e10f, 1e25f, std::numeric_limits<float>::infinity()}) x.push_back(far);
  for (std::size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
  std::vector<float> y(x.size());
  pointwise_norm_forward<float>({1, std::ssize(x), 1, x.data()}, y.data());
  double worst = 0, largest = 0, worst_far = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = std::tanh(double{x[i]}), error = std::abs(y[i] - want) / std::abs(want);
    if (!(error <= worst)) worst = error;
    largest = std::max(largest, std::abs(double{y[i]}));
    if (std::abs(x[i]) > 9.02f) worst_far = std::max(worst_far, std::abs(y[i] - (x[i] < 0 ? -1.0 : 1.0)));
  }
  CHECK(worst <= 2e-7);
  CHECK(largest == 1);
  CHECK(worst_far == 0);
  const float odd[] = {0.0f, std::nanf(""), -std::nanf("1")};
  pointwise_norm_forward<float>({1, 3, 1, odd}, y.data());
  CHECK(y[0] == 0);
  CHECK(std::isnan(y[1]));
  CHECK(std::isnan(y[2]));
}

TEST_CASE("kernel: the derivative of tanh is relatively accurate where tanh is nearly 1") {
  std::vector<float> x;
  for (int i = -9000; i <= 9000; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
  const Index n = static_cast<Index>(x.size());
  const std::vector<float> dy(x.size(), 1.0f);
  std::vector<float> dx(x.size());
  pointwise_norm_backward<float>({1, n, 1, x.data()}, {dy.data(), dx.data()});
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = 1 / (std::cosh(double{x[i]}) * std::cosh(double{x[i]}));
    const double error = std::abs(dx[i] - want) / want;
    if (!(error <= worst)) worst = error;
  }
  CHECK(worst <= 2e-6);
}

TEST_CASE("kernel: erf of a float is good to 3e-7 relative, never beyond 1; its derivative too") {
  std::vector<float> x = {1e-30f, 1e-10f};
  for (int i = 1; i <= 40000; ++i) x.push_back(static_cast<float>(i) * 1e-4f);
  for (const float far : {9.0f, 1e3f, 1e10f, 1e25f, std::numeric_limits<float>::infinity()}) x.push_back(far);
  for (std::size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
  const Index n = std::ssize(x);
  std::vector<float> y(x.size()), dx(x.size());
  const std::vector<float> dy(x.size(), 1.0f);
  const PointwiseNorm<float> derf{1, n, 1, x.data(), nullptr, nullptr, PointwiseFn::erf, 0};
  pointwise_norm_forward(derf, y.data());
  pointwise_norm_backward(derf, {dy.data(), dx.data()});
  double worst = 0, worst_derivative = 0, largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double u = x[i], want = std::erf(u), slope = 2 / std::sqrt(std::numbers::pi) * std::exp(-u * u);
    if (const double error = std::abs(y[i] - want) / std::abs(want); !(error <= worst)) worst = error;
    largest = std::max(largest, std::abs(double{y[i]}));
    if (slope < 1e-30) continue;
    const double error = std::abs(dx[i] - slope) / slope / (1 + u * u);
    if (!(error <= worst_derivative)) worst_derivative = error;
  }
  CHECK(worst <= 3e-7);
  CHECK(largest == 1);
  CHECK(worst_derivative <= 2e-7);
  const float odd[] = {0.0f, std::nanf(""), -std::nanf("1")};
  pointwise_norm_forward<float>({1, 3, 1, odd, nullptr, nullptr, PointwiseFn::erf, 0}, y.data());
  CHECK(y[0] == 0);
  CHECK(std::isnan(y[1]));
  CHECK(std::isnan(y[2]));
}

TEST_CASE("kernel: activations of every length, the derivative in place of the argument") {
  for (const Index n : {1, 3, 7, 8, 16, 17, 33, 10000}) {
    const std::vector<float> x = normals<float>(n, "x", 2);
    for (const Activation kind : kinds) {
      std::vector<float> y = nans<float>(n), derivative = x;
      activation(kind, n, derivative.data(), y.data(), derivative.data());
      std::vector<double> want_y, want_derivative;
      for (const float v : x) {
        want_y.push_back(activation_value(kind, v));
        want_derivative.push_back(activation_derivative(kind, v));
      }
      CAPTURE(n);
      CHECK(scaled_error(y, want_y) <= 2e-6);
      CHECK(scaled_error(derivative, want_derivative) <= 2e-6);
    }
  }
}

TEST_CASE_TEMPLATE("kernel: swiglu equals silu times x", Real, float, double) {
  for (const Index n : {1, 17, 10000}) {
    const std::vector<Real> g = normals<Real>(n, "g", 2), x = normals<Real>(n, "x"),
                            dy = normals<Real>(n, "dy");
    std::vector<Real> y = nans<Real>(n), dg = nans<Real>(n), dx = normals<Real>(n, "old");
    const std::vector<Real> old = dx;
    swiglu_forward(n, g.data(), x.data(), y.data());
    swiglu_backward(n, g.data(), x.data(), dy.data(), dg.data(), Real(0), dx.data(), Real(1));
    std::vector<double> want_y, want_dg, want_dx;
    for (std::size_t i = 0; i < x.size(); ++i) {
      want_y.push_back(activation_value(Activation::silu, g[i]) * x[i]);
      want_dg.push_back(dy[i] * double{x[i]} * activation_derivative(Activation::silu, g[i]));
      want_dx.push_back(old[i] + dy[i] * activation_value(Activation::silu, g[i]));
    }
    CHECK(scaled_error(y, want_y) <= pick<Real>(2e-6, 1e-13));
    CHECK(scaled_error(dg, want_dg) <= pick<Real>(2e-6, 1e-13));
    CHECK(scaled_error(dx, want_dx) <= pick<Real>(2e-6, 1e-13));
  }
}

TEST_CASE_TEMPLATE("kernel: NaN passes through every activation, and derivatives of huge numbers are finite",
                   Real, float, double) {
  for (const Activation kind : kinds) {
    for (const Index at : {0, 8, 16}) {
      std::vector<Real> x = normals<Real>(17, "x"), y(17), derivative(17);
      x[static_cast<std::size_t>(at)] = std::numeric_limits<Real>::quiet_NaN();
      activation<Real>(kind, 17, x.data(), y.data(), derivative.data());
      for (Index i = 0; i < 17; ++i) {
        CHECK(std::isnan(y[static_cast<std::size_t>(i)]) == (i == at));
        if (kind != Activation::relu) CHECK(std::isnan(derivative[static_cast<std::size_t>(i)]) == (i == at));
      }
    }
    for (const double size : {pick<Real>(1e25, 1e200), pick<Real>(1e37, 1e300), pick<Real>(3e38, 1.7e308)}) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(size);
      const Real huge = static_cast<Real>(size);  // its square overflows
      const std::vector<Real> x = {huge, -huge};
      std::vector<Real> y(2), derivative(2);
      activation<Real>(kind, 2, x.data(), y.data(), derivative.data());
      CHECK(y == std::vector<Real>{huge, 0});
      CHECK(derivative == std::vector<Real>{1, 0});
    }
  }
}

TEST_CASE_TEMPLATE("kernel: swiglu has the same bits at any thread count", Real, float, double) {
  const Index n = 40001;
  const std::vector<Real> x = normals<Real>(n, "x"), dy = normals<Real>(n, "dy");
  CHECK(same_bits_at_any_thread_count([&] {
    std::vector<Real> y(x.size() * 3);
    swiglu_forward(n, x.data(), dy.data(), y.data());
    swiglu_backward(n, x.data(), dy.data(), x.data(), y.data() + n, Real(0), y.data() + 2 * n, Real(0));
    return y;
  }));
}
