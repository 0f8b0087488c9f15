// The activations, and the vectorised exp, normal tail, tanh and erf, over fine grids.
#include <functional>

#include "helpers.h"
#include "kernels/pointwise.h"
#include "kernels/rows.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr Activation kinds[] = {Activation::relu, Activation::relu2, Activation::gelu, Activation::gelu_tanh,
                                Activation::silu};

// `begin`, ..., `end`, by steps of `step`.
std::vector<float> grid(double begin, double end, double step) {
  std::vector<float> x;
  for (Index i = 0; begin + step * static_cast<double>(i) <= end; ++i)
    x.push_back(static_cast<float>(begin + step * static_cast<double>(i)));
  return x;
}

// A grid with these numbers and their negatives.
std::vector<float> with_tails(std::vector<float> x, std::initializer_list<float> tails) {
  for (const float tail : tails) x.insert(x.end(), {tail, -tail});
  return x;
}

using Function = std::function<double(double)>;
double nothing(double) { return 0; }

// The largest error of y(x), each relative to max(|expected(x)|, floor(x)).
double worst_error(const std::vector<float>& x, const std::vector<float>& y, const Function& expected,
                   const Function& floor = nothing) {
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = expected(x[i]), scale = std::max({std::abs(exact), floor(x[i]), 1e-300});
    const double error = std::abs(y[i] - exact) / scale;
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) return worst;
  }
  return worst;
}

// f(x) and f'(x) of an activation or of the function of a pointwise norm, by the kernels of floats.
struct Computed {
  Computed(Activation kind, const std::vector<float>& x)
      : value(nans<float>(std::ssize(x))), derivative(value) {
    activation(kind, std::ssize(x), x.data(), value.data(), derivative.data());
  }
  Computed(PointwiseFn function, const std::vector<float>& x)
      : value(nans<float>(std::ssize(x))), derivative(value) {
    const std::vector<float> dy(x.size(), 1.0f);
    const PointwiseNorm<float> norm{1, std::ssize(x), 1, x.data(), nullptr, nullptr, function, 0};
    pointwise_norm_forward(norm, value.data());
    pointwise_norm_backward(norm, {dy.data(), derivative.data()});
  }
  std::vector<float> value, derivative;
};

float exponential(float x) {
  float y = 0;
  kernels<float>().add_exponentials(1, &x, 0, 1, &y, 0);
  return y;
}

Function value_of(Activation kind) {
  return [kind](double x) { return ActivationAt(kind, x).value; };
}
Function derivative_of(Activation kind) {
  return [kind](double x) { return ActivationAt(kind, x).derivative; };
}

}  // namespace

TEST_CASE("kernel: exp of a float is good to 1e-7 relative, and 0 or infinite beyond its range") {
  const std::vector<float> x = grid(-87, 87.9, 1e-3);
  std::vector<float> y;
  for (const float number : x) y.push_back(exponential(number));
  CHECK(worst_error(x, y, [](double v) { return std::exp(v); }) <= 1e-7);
  CHECK(exponential(0.0f) == 1.0f);
  // No subnormal numbers: they would slow down what reads them.
  for (const float low : {-87.34f, -88.0f, -1e30f, -infinity}) CHECK(exponential(low) == 0.0f);
  for (const float high : {89.0f, 1000.0f, 1e30f, infinity}) CHECK(exponential(high) == infinity);
  CHECK(exponential(88.0f) >= 1.6e38f);
  for (const char* payload : {"", "1", "0x12345"}) CHECK(std::isnan(exponential(std::nanf(payload))));
}

TEST_CASE("kernel: activations equal the library's, value and derivative") {
  std::vector<float> x = with_tails(grid(-40, 40, 1e-3), {0, 1e-30f, 100, 1000, 1e6f, 1e15f});
  for (const float number : grid(-0.04, 0.04, 1e-5)) x.push_back(number);
  for (const Activation kind : kinds) {
    CAPTURE(static_cast<int>(kind));
    const Computed y(kind, x);
    // In the negative tail a value is x times a number that need only be small against 1.
    CHECK(worst_error(x, y.value, value_of(kind), [](double v) { return std::abs(v); }) <= 5e-7);
    CHECK(worst_error(x, y.derivative, derivative_of(kind), [](double) { return 1.0; }) <= 2e-6);
  }
}

TEST_CASE("kernel: the negative tail of gelu, and gelu_tanh near 0, are relatively accurate too") {
  // exp(-x^2/2) passes on the rounding of its argument, x^2/2 times as large.
  const Function gelu = value_of(Activation::gelu);
  const auto floor = [&](double v) { return std::abs(gelu(v)) * (1 + v * v / 10); };
  const std::vector<float> tail = grid(-10, 0, 1e-4), middle = grid(-0.5, 0.5, 1e-3);
  CHECK(worst_error(tail, Computed(Activation::gelu, tail).value, gelu, floor) <= 1e-6);
  CHECK(worst_error(middle, Computed(Activation::gelu_tanh, middle).value, value_of(Activation::gelu_tanh)) <=
        2e-7);
}

TEST_CASE(
    "kernel: tanh and erf of a float and their derivatives are relatively accurate, and never beyond 1") {
  const auto erf_slope = [](double v) { return 2 / std::sqrt(std::numbers::pi) * std::exp(-v * v); };
  const struct {
    PointwiseFn function;
    double (*exact)(double);
    float most, rounds_to_1;  // the end of the grid; values of larger arguments are 1
    double tolerance;
    Function slope, slope_floor;
    double slope_tolerance;
  } cases[] = {
      {PointwiseFn::tanh, std::tanh, 12, 9.02f, 2e-7,
       [](double v) { return 1 / (std::cosh(v) * std::cosh(v)); }, [](double v) { return std::abs(v) > 9; },
       2e-6},
      {PointwiseFn::erf, std::erf, 4, 4, 3e-7, erf_slope,
       [&](double v) { return std::max(erf_slope(v) * (1 + v * v), 1e-30); }, 2e-7},
  };
  for (const auto& [function, exact, most, rounds_to_1, tolerance, slope, slope_floor, slope_tolerance] :
       cases) {
    CAPTURE(static_cast<int>(function));
    const std::vector<float> x =
        with_tails(grid(-most, most, 1e-4), {0, 1e-30f, 1e-10f, 1e3f, 1e10f, 1e25f, infinity});
    const Computed y(function, x);
    CHECK(worst_error(x, y.value, exact) <= tolerance);
    CHECK(worst_error(x, y.derivative, slope, slope_floor) <= slope_tolerance);
    int wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float size = std::abs(y.value[i]);
      wrong += size > 1 || (std::abs(x[i]) > rounds_to_1 && size != 1);
    }
    CHECK(wrong == 0);
    for (const float nan : {std::nanf(""), -std::nanf("1")})
      CHECK(std::isnan(Computed(function, {nan}).value[0]));
  }
}

TEST_CASE("kernel: activations of every length equal their twins, the derivative in place of the argument") {
  for (const Index n : {1, 3, 7, 8, 16, 17, 33, 10000}) {
    for (const Activation kind : kinds) {
      INFO("activation ", static_cast<int>(kind), " of ", n);
      const auto compute = [&](auto real) {
        using Real = decltype(real);
        Outputs<Real> out = {{"y", nans<Real>(n)}, {"derivative", floats<Real>(n, "x", 2)}};
        Real* x = out["derivative"].data();
        activation(kind, n, x, out["y"].data(), x);
        return out;
      };
      compare_with_twin(compute, 2e-6);
    }
  }
}

namespace {

// silu(gate) * x and its gradients; dx is added to.
template <class Real>
Outputs<Real> swiglu(Index n) {
  const std::vector<Real> gate = floats<Real>(n, "gate", 2), x = floats<Real>(n, "x"),
                          dy = floats<Real>(n, "dy");
  Outputs<Real> out = {{"y", nans<Real>(n)}, {"dgate", nans<Real>(n)}, {"dx", floats<Real>(n, "old")}};
  swiglu_forward(n, gate.data(), x.data(), out["y"].data());
  swiglu_backward(n, gate.data(), x.data(), dy.data(), out["dgate"].data(), Real(0), out["dx"].data(),
                  Real(1));
  return out;
}

}  // namespace

TEST_CASE("kernel: swiglu equals its twin") {
  for (const Index n : {1, 17, 40001})
    compare_with_twin([&](auto real) { return swiglu<decltype(real)>(n); }, 2e-6);
}

TEST_CASE_TEMPLATE("kernel: NaN passes through every activation, and derivatives of huge numbers are finite",
                   Real, float, double) {
  for (const Activation kind : kinds) {
    for (const Index at : {0, 8, 16}) {
      std::vector<Real> x = normals<Real>(17, "x"), y(17), derivative(17);
      x[at] = std::numeric_limits<Real>::quiet_NaN();
      activation<Real>(kind, 17, x.data(), y.data(), derivative.data());
      for (Index i = 0; i < 17; ++i) {
        CHECK(std::isnan(y[i]) == (i == at));
        if (kind != Activation::relu) CHECK(std::isnan(derivative[i]) == (i == at));
      }
    }
    if (kind == Activation::relu2) continue;  // huge by definition
    for (const double size : {pick<Real>(1e25, 1e200), pick<Real>(1e37, 1e300), pick<Real>(3e38, 1.7e308)}) {
      INFO("activation ", static_cast<int>(kind), " of ", size);
      const Real huge = static_cast<Real>(size);  // its square overflows
      const std::vector<Real> x = {huge, -huge};
      std::vector<Real> y(2), derivative(2);
      activation<Real>(kind, 2, x.data(), y.data(), derivative.data());
      CHECK(y == std::vector<Real>{huge, 0});
      CHECK(derivative == std::vector<Real>{1, 0});
    }
  }
}
