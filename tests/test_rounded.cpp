// Rows kept rounded to bf16, and what is computed on them where they lie.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "helpers.h"
#include "kernels/rounded.h"
#include "kernels/simd.h"

namespace normscope {
using namespace testing;
namespace {

struct Shape {
  Index rows, cols;
};

// x (rows, cols), rounded.
std::vector<float> rounded(const Shape& shape, const std::vector<float>& x) {
  std::vector<float> out(static_cast<std::size_t>(shape.rows * rounded_cols(shape.cols)));
  round_rows(shape.rows, shape.cols, x.data(), out.data());
  return out;
}

std::vector<float> widened(const Shape& shape, const std::vector<float>& x) {
  std::vector<float> out(static_cast<std::size_t>(shape.rows * shape.cols));
  widen_rows(shape.rows, shape.cols, x.data(), out.data());
  return out;
}

}  // namespace

TEST_CASE("kernel: numbers rounded to bf16 are the nearest; products of them are rounded again") {
  for (const Shape shape : {Shape{3, 1}, {3, 2}, {3, 7}, {3, 32}, {3, 75}}) {
    CAPTURE(shape.cols);
    const std::vector<float> x = normals<float>(shape.rows * shape.cols, "x");
    const std::vector<float> once = rounded(shape, x), wide = widened(shape, once);
    std::vector<float> squares(once.size());
    multiply_rounded(static_cast<Index>(once.size()), once.data(), once.data(), squares.data());
    const std::vector<float> wide_squares = widened(shape, squares);
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(wide[i] == nearest_bf16(x[i]));
      CHECK(wide_squares[i] == nearest_bf16(wide[i] * wide[i]));
    }
  }
}

TEST_CASE("kernel: moments of rounded rows are those of the same numbers as floats") {
  for (const Shape shape : {Shape{1, 1}, {3, 5}, {3, 40}, {1001, 65}, {513, 128}}) {
    CAPTURE(shape.cols);
    std::vector<float> x = normals<float>(shape.rows * shape.cols, "x", 2, 0.5);
    for (const bool finite : {true, false}) {
      if (!finite) x[x.size() / 2] = std::nanf(""), x.back() = HUGE_VALF;
      const std::vector<float> once = rounded(shape, x), wide = widened(shape, once);
      const TensorStats a = tensor_stats<float>({once.data(), shape.rows, shape.cols, true});
      const TensorStats b = tensor_stats<float>({wide.data(), shape.rows, shape.cols});
      CHECK(a.count == shape.rows * shape.cols);
      CHECK(a.nonfinite == b.nonfinite);
      CHECK(a.abs_max == b.abs_max);
      if (finite) {
        constexpr double tolerance = 5e-6;  // other sums of floats
        CHECK(std::abs(a.sum - b.sum) <= tolerance * std::sqrt(b.sum_squares * static_cast<double>(b.count)));
        CHECK(std::abs(a.sum_squares - b.sum_squares) <= tolerance * b.sum_squares);
      } else {
        CHECK(a.nonfinite >= 1);
      }
    }
  }
}

TEST_CASE("kernel: gelu and its slope, computed roughly, are off by the rounding to bf16 and little more") {
  for (const GemmKernel<float>* kernel : {&simd<float>().gemm_bf16, &bf16_kernel<float>()}) {
    for (float x = -9; x <= 9; x += 0.01f) {
      float y, slope, wide_y, wide_slope;
      kernel->activate(ActivationKind::gelu, 1, &x, &y, &slope);
      kernel->widen(1, &y, &wide_y);
      kernel->widen(1, &slope, &wide_slope);
      CAPTURE(x);
      const double want = activation_value(ActivationKind::gelu, x);
      const double want_slope = activation_derivative(ActivationKind::gelu, x);
      const double phi = std::exp(-0.5 * double{x} * double{x}) * 0.3989422804;
      CHECK(std::abs(wide_y - want) <= (1.0 / 256 + 4e-4) * std::abs(want));
      // The slope is a sum of Φ and x φ, of which each is off by so much.
      CHECK(std::abs(wide_slope - want_slope) <=
            std::abs(want_slope) / 256 + 4e-4 * (1 + std::abs(x)) * phi + 1e-7);
    }
    for (const float x : {1e3f, 1e25f, 3e38f}) {
      float y, slope, wide;
      for (const float sign : {-1.0f, 1.0f}) {
        const float signed_x = sign * x;
        kernel->activate(ActivationKind::gelu, 1, &signed_x, &y, &slope);
        kernel->widen(1, &slope, &wide);
        CHECK(wide == (sign < 0 ? 0 : 1));
        kernel->widen(1, &y, &wide);
        CHECK(std::abs(wide - (sign < 0 ? 0 : x)) <= x / 256);
        if (sign < 0) CHECK(wide == 0);
      }
    }
  }
}

}  // namespace normscope
