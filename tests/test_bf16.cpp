// Matrices in bf16, and what is computed on them where they lie.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "helpers.h"
#include "kernels/bf16.h"
#include "kernels/simd.h"

namespace normscope {
using namespace testing;
namespace {

struct Shape {
  Index rows, cols;
};

// x in bf16, in memory of its own.
struct Rounded {
  Rounded(Index rows, Index cols, std::vector<float> x)
      : numbers(static_cast<std::size_t>(rows * row_stride(DType::bf16, cols)), bf16{0x7FFF}),
        matrix(numbers.data(), rows, cols) {
    to_bf16({x.data(), rows, cols}, matrix);
  }
  std::vector<bf16> numbers;
  Matrix<float> matrix;
};

std::vector<float> dense(const Matrix<float>& x) {
  std::vector<float> out(static_cast<std::size_t>(x.size()));
  to_float(x, out.data());
  return out;
}

}  // namespace

TEST_CASE("kernel: numbers rounded to bf16 are the nearest; products of them are rounded again") {
  for (const Shape shape : {Shape{3, 1}, {3, 2}, {3, 7}, {3, 32}, {3, 75}}) {
    CAPTURE(shape.cols);
    const std::vector<float> x = normals<float>(shape.rows * shape.cols, "x");
    const Rounded once(shape.rows, shape.cols, x);
    const std::vector<float> wide = dense(once.matrix);
    Matrix<float> square = once.matrix;
    std::vector<bf16> out(once.numbers.size());
    square.half = out.data();
    multiply(once.matrix, once.matrix, square);
    const std::vector<float> wide_squares = dense(square);
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(wide[i] == nearest_bf16(x[i]));
      CHECK(wide_squares[i] == nearest_bf16(wide[i] * wide[i]));
    }
  }
}

TEST_CASE("kernel: NaN stays NaN in bf16, whatever its payload and the place in its row") {
  for (const std::uint32_t bits : {0x7FC00000U, 0x7F800001U, 0x7FFFFFFFU, 0xFFFFFFFFU, 0x7FFF8001U}) {
    for (const Index cols : {1, 64}) {
      CAPTURE(bits);
      const std::vector<float> x(static_cast<std::size_t>(cols), std::bit_cast<float>(bits));
      for (const float y : dense(Rounded(1, cols, x).matrix)) CHECK(std::isnan(y));
    }
  }
}

TEST_CASE("kernel: statistics of a bf16 matrix are those of the same numbers as floats") {
  for (const Shape shape : {Shape{1, 1}, {3, 5}, {3, 40}, {1001, 65}, {513, 128}}) {
    CAPTURE(shape.cols);
    std::vector<float> x = normals<float>(shape.rows * shape.cols, "x", 2, 0.5);
    for (const bool finite : {true, false}) {
      if (!finite) x[x.size() / 2] = std::nanf(""), x.back() = HUGE_VALF;
      const Rounded once(shape.rows, shape.cols, x);
      std::vector<float> wide = dense(once.matrix);
      const TensorStats a = tensor_stats(once.matrix);
      const TensorStats b = tensor_stats<float>({wide.data(), shape.rows, shape.cols});
      CHECK(a.count == shape.rows * shape.cols);
      CHECK(a.nonfinite == b.nonfinite);
      CHECK(a.abs_max == b.abs_max);
      std::vector<double> columns(shape.cols), wide_columns(shape.cols);
      const Matrix<float> widened(wide.data(), shape.rows, shape.cols);
      ColumnStats<float> both[] = {{once.matrix, columns.data()}, {widened, wide_columns.data()}};
      column_stats<float>(both);
      CHECK(both[0].stats.nonfinite == b.nonfinite);
      if (finite) {
        constexpr double tolerance = 5e-6;  // other sums of floats
        for (std::size_t i = 0; i < columns.size(); ++i)
          REQUIRE(std::abs(columns[i] - wide_columns[i]) <= tolerance * wide_columns[i]);
        CHECK(std::abs(a.sum - b.sum) <= tolerance * std::sqrt(b.sum_squares * static_cast<double>(b.count)));
        CHECK(std::abs(a.sum_squares - b.sum_squares) <= tolerance * b.sum_squares);
      } else {
        CHECK(a.nonfinite >= 1);
      }
    }
  }
}

TEST_CASE("kernel: gelu and its derivative, approximated, are off by the rounding to bf16 and little more") {
  for (const Bf16Kernels* kernel : {&simd_kernels().bf16, &bf16_kernels()}) {
    for (float x = -9; x <= 9; x += 0.01f) {
      bf16 y[2], derivative[2];
      float wide_y, wide_derivative;
      kernel->activate(Activation::gelu, 1, &x, y, derivative);
      kernel->to_float(1, y, &wide_y);
      kernel->to_float(1, derivative, &wide_derivative);
      CAPTURE(x);
      const double want = activation_value(Activation::gelu, x);
      const double want_derivative = activation_derivative(Activation::gelu, x);
      const double phi = std::exp(-0.5 * double{x} * double{x}) * 0.3989422804;
      CHECK(std::abs(wide_y - want) <= (1.0 / 256 + 4e-4) * std::abs(want));
      // The derivative is a sum of Φ and x φ, of which each is off by so much.
      CHECK(std::abs(wide_derivative - want_derivative) <=
            std::abs(want_derivative) / 256 + 4e-4 * (1 + std::abs(x)) * phi + 1e-7);
    }
    for (const float x : {1e3f, 1e25f, 3e38f}) {
      bf16 y[2], derivative[2];
      float wide;
      for (const float sign : {-1.0f, 1.0f}) {
        const float signed_x = sign * x;
        kernel->activate(Activation::gelu, 1, &signed_x, y, derivative);
        kernel->to_float(1, derivative, &wide);
        CHECK(wide == (sign < 0 ? 0 : 1));
        kernel->to_float(1, y, &wide);
        CHECK(std::abs(wide - (sign < 0 ? 0 : x)) <= x / 256);
        if (sign < 0) CHECK(wide == 0);
      }
    }
  }
}

}  // namespace normscope
