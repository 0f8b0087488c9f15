// The activations, and the vectorised exp, normal tail and tanh, over fine grids.
#include "helpers.h"
#include "kernels/pointwise.h"
#include "kernels/rows.h"
#include "kernels/simd.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

constexpr Activation kinds[] = {Activation::relu, Activation::relu2, Activation::gelu, Activation::gelu_tanh,
                                Activation::silu};

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
template <class Real, class Expected>
double worst_error(const std::vector<Real>& x, const std::vector<Real>& y, Expected expected) {
  return worst_error(x, y, expected, [](double) { return 0.0; });
}

// -most ... most by steps of 1e-4, and far tails.
std::vector<float> symmetric_grid(int most) {
  std::vector<float> x = {1e-30f, 1e-10f};
  for (int i = 1; i <= most * 10000; ++i) x.push_back(static_cast<float>(i) * 1e-4f);
  for (const float far : {1e3f, 1e10f, 1e25f, std::numeric_limits<float>::infinity()}) x.push_back(far);
  for (std::size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
  return x;
}

// f(x) and f'(x) of the function of a pointwise norm.
struct Pointwise {
  Pointwise(PointwiseFn function, const std::vector<float>& x) : y(x.size()), derivative(x.size()) {
    const std::vector<float> dy(x.size(), 1.0f);
    const PointwiseNorm<float> norm{1, std::ssize(x), 1, x.data(), nullptr, nullptr, function, 0};
    pointwise_norm_forward(norm, y.data());
    pointwise_norm_backward(norm, {dy.data(), derivative.data()});
  }
  std::vector<float> y, derivative;
};

float exponential(float x) {
  float y = 0;
  kernels<float>().add_exponentials(1, &x, 0, 1, &y, 0);
  return y;
}

}  // namespace

TEST_CASE("kernel: exp of a float is good to 1e-7 relative, and 0 or infinite beyond its range") {
  std::vector<float> x, y;
  for (int i = -87000; i <= 87900; ++i) {
    x.push_back(static_cast<float>(i) * 1e-3f);
    y.push_back(exponential(x.back()));
  }
  CHECK(worst_error(x, y, [](double v) { return std::exp(v); }) <= 1e-7);
  CHECK(exponential(0.0f) == 1.0f);
  CHECK(exponential(-87.34f) == 0.0f);  // no subnormal numbers: they would slow down what reads them
  CHECK(exponential(-88.0f) == 0.0f);
  CHECK(exponential(-1e30f) == 0.0f);
  CHECK(exponential(-std::numeric_limits<float>::infinity()) == 0.0f);
  for (const float large : {89.0f, 1000.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    CHECK(exponential(large) == std::numeric_limits<float>::infinity());
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
  const auto value_of = [](double v) { return activation_value(Activation::gelu, v); };
  // exp(-x^2/2) passes on the rounding of its argument, x^2/2 times as large.
  const auto floor = [&](double v) { return std::abs(value_of(v)) * (1 + v * v / 10); };
  CHECK(worst_error(x, y, value_of, floor) <= 1e-6);
}

TEST_CASE("kernel: gelu_tanh near 0 is relatively accurate") {
  std::vector<float> x;
  for (int i = -500; i <= 500; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
  std::vector<float> y(x.size()), derivative(x.size());
  activation(Activation::gelu_tanh, std::ssize(x), x.data(), y.data(), derivative.data());
  CHECK(worst_error(x, y, [](double v) { return activation_value(Activation::gelu_tanh, v); }) <= 2e-7);
}

TEST_CASE("kernel: tanh of a float is good to 2e-7 relative, never beyond 1, and 1 where it rounds to it") {
  const std::vector<float> x = symmetric_grid(12), y = Pointwise(PointwiseFn::tanh, x).y;
  CHECK(worst_error(x, y, [](double v) { return std::tanh(v); }) <= 2e-7);
  int wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float size = std::abs(y[i]);
    wrong += std::abs(x[i]) > 9.02f ? size != 1 : size > 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("kernel: the derivative of tanh is relatively accurate where tanh is nearly 1") {
  std::vector<float> x;
  for (int i = -9000; i <= 9000; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
  const auto derivative_of = [](double v) { return 1 / (std::cosh(v) * std::cosh(v)); };
  CHECK(worst_error(x, Pointwise(PointwiseFn::tanh, x).derivative, derivative_of) <= 2e-6);
}

TEST_CASE("kernel: erf of a float is good to 3e-7 relative, never beyond 1; its derivative too") {
  const std::vector<float> x = symmetric_grid(4);
  const Pointwise got(PointwiseFn::erf, x);
  CHECK(worst_error(x, got.y, [](double v) { return std::erf(v); }) <= 3e-7);
  CHECK(std::ranges::all_of(got.y, [](float y) { return std::abs(y) <= 1; }));
  const auto derivative_of = [](double v) { return 2 / std::sqrt(std::numbers::pi) * std::exp(-v * v); };
  const auto floor = [&](double v) { return std::max(derivative_of(v) * (1 + v * v), 1e-30); };
  CHECK(worst_error(x, got.derivative, derivative_of, floor) <= 2e-7);
}

TEST_CASE("kernel: tanh and erf of 0 are 0, of NaN NaN") {
  const std::vector<float> x = {0.0f, std::nanf(""), -std::nanf("1")};
  for (const PointwiseFn function : {PointwiseFn::tanh, PointwiseFn::erf}) {
    const std::vector<float> y = Pointwise(function, x).y;
    CHECK(y[0] == 0);
    CHECK(std::isnan(y[1]));
    CHECK(std::isnan(y[2]));
  }
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
    if (kind == Activation::relu2) continue;  // huge by definition
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
