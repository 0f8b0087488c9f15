// The fast kernels of cross-entropy, sums, statistics, updates and rounding against their naive twins.
#include <bit>
#include <numeric>

#include "helpers.h"
#include "kernels/pointwise.h"
#include "kernels/rows.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Cross-entropy of rows of logits. Its gradient, times `scale`, goes to `dlogits`.
template <class Real>
Outputs<Real> cross_entropy(const std::vector<Real>& logits, const std::vector<std::int32_t>& targets,
                            Real scale, Real beta, const std::vector<Real>& dlogits) {
  const Index rows = std::ssize(targets);
  const std::vector<Real> unset = nans<Real>(rows);
  Outputs<Real> out = {{"loss", unset}, {"max", unset}, {"sum", unset}, {"dlogits", dlogits}};
  const CrossEntropy<Real> ce{
      rows, std::ssize(logits) / rows, logits.data(), targets.data(), {out["max"].data(), out["sum"].data()}};
  cross_entropy_forward(ce, out["loss"].data());
  cross_entropy_backward(ce, scale, out["dlogits"].data(), beta);
  return out;
}

// Its loss and gradient, which must not read what was there before.
template <class Real>
Outputs<Real> cross_entropy(const std::vector<Real>& logits, const std::vector<std::int32_t>& targets) {
  return cross_entropy<Real>(logits, targets, 1, 0, nans<Real>(std::ssize(logits)));
}

}  // namespace

TEST_CASE("kernel: cross-entropy equals its twin") {
  for (const Index classes : {1, 3, 16, 17, 65, 384}) {
    for (const Index rows : {1, 5, 70}) {
      for (const float beta : {0.0f, 1.0f}) {
        INFO(rows, " rows, ", classes, " classes, beta ", beta);
        const auto compute = [&](auto real) {
          using Real = decltype(real);
          const Index n = rows * classes;
          return cross_entropy<Real>(floats<Real>(n, "logits", 3), integers(rows, classes, "targets"), 0.3f,
                                     beta, beta == 0 ? nans<Real>(n) : floats<Real>(n, "old"));
        };
        compare_with_twin(compute, 1e-6);
      }
    }
  }
}

TEST_CASE_TEMPLATE("kernel: adding a constant to all logits keeps the digits of the loss and its gradient",
                   Real, float, double) {
  const auto with_offset = [](Real offset) {
    std::vector<Real> logits = normals<Real>(9 * 65, "logits");
    for (Real& x : logits) x = offset + std::round(x * 64) / 64;  // sums are exact
    Outputs<Real> out = cross_entropy(logits, integers(9, 65, "targets"));
    return std::vector{out["loss"], out["dlogits"]};
  };
  CHECK(with_offset(0) == with_offset(1000));
}

TEST_CASE_TEMPLATE("kernel: cross-entropy of extreme logits neither overflows nor loses the difference", Real,
                   float, double) {
  const Index classes = 21;
  for (const Real base : {Real(1e4), Real(-1e4), Real(0)}) {
    std::vector<Real> logits(2 * classes, base);
    logits[classes] = base + Real(2e4);
    Outputs<Real> out = cross_entropy(logits, {20, 20});
    const double ulp = pick<Real>(1e-7, 2e-16) * 3e4;
    CHECK(std::abs(out["loss"][0] - std::log(21.0)) <= ulp);
    CHECK(std::abs(out["loss"][1] - 2e4) <= ulp);
    CHECK(all_finite(out["dlogits"]));
    CHECK(std::abs(out["dlogits"][classes] - 1) <= ulp);  // all weight on the largest
    CHECK(out["dlogits"].back() == Real(-1));
  }
}

TEST_CASE_TEMPLATE("kernel: a non-finite logit spoils the loss and the gradient of its row alone", Real,
                   float, double) {
  for (const double bad : {std::nan(""), infinity}) {
    for (const Index at : {0, 7, 16}) {
      std::vector<Real> logits = normals<Real>(2 * 17, "logits");
      logits[at] = static_cast<Real>(bad);
      Outputs<Real> out = cross_entropy(logits, {3, 3});
      CHECK(!std::isfinite(out["loss"][0]));
      CHECK(std::isfinite(out["loss"][1]));
      CHECK(std::isnan(out["dlogits"][at]));
      CHECK(std::isfinite(out["dlogits"][17]));
    }
  }
}

TEST_CASE("kernel: sums and products equal their twins") {
  const Index rows = 37;
  for (const Index cols : {1, 3, 16, 17, 1000}) {
    CAPTURE(cols);
    const Index n = rows * cols;
    const auto compute = [&](auto real) {
      using Real = decltype(real);
      const std::vector<Real> a = floats<Real>(n, "a"), b = floats<Real>(n, "b");
      Outputs<Real> out = {{"0.3 a", nans<Real>(n)},
                           {"0.3 a + b/2", b},
                           {"0.3 a + b", nans<Real>(n)},
                           {"a b", b},
                           {"columns", b}};
      axpby(n, Real(0.3f), a.data(), Real(0), out["0.3 a"].data());
      axpby(n, Real(0.3f), a.data(), Real(0.5), out["0.3 a + b/2"].data());
      add_scaled(n, Real(0.3f), a.data(), b.data(), out["0.3 a + b"].data());
      multiply(n, a.data(), out["a b"].data(), out["a b"].data());
      sum_rows(rows, cols, a.data(), out["columns"].data());  // added to the first row of b
      return out;
    };
    compare_with_twin(compute, 1e-6);
    const auto dot_product = [&](auto real) {
      using Real = decltype(real);
      return dot(n, floats<Real>(n, "a").data(), floats<Real>(n, "b").data());
    };
    const std::vector<double> products = compute(double()).at("a b");
    const auto add_size = [](double sum, double x) { return sum + std::abs(x); };
    const double size = std::accumulate(products.begin(), products.end(), 0.0, add_size);
    CHECK(std::abs(dot_product(float()) - dot_product(double())) <= 1e-6 * size);
  }
}

TEST_CASE("kernel: the error of a sum does not grow with the number of rows") {
  const Index rows = 100000;
  std::vector<float> x = normals<float>(rows, "x", 1, 1), sum(1);
  double expected = 0;
  for (const float number : x) expected += number;
  sum_rows(rows, Index{1}, x.data(), sum.data());
  CHECK(std::abs(sum[0] / expected - 1) <= 2e-6);
}

TEST_CASE(
    "kernel: statistics equal their twin at any size of the numbers, also where a float has no squares") {
  const auto check = [](Index n, double size) {
    INFO(n, " numbers of size ", size);
    const std::vector<float> x = normals<float>(n, "x", size, size / 4);
    const std::vector<double> wide(x.begin(), x.end());
    const TensorStats fast = tensor_stats(n, x.data()), naive = tensor_stats(n, wide.data());
    CHECK(std::abs(fast.sum - naive.sum) <= 1e-6 * std::sqrt(naive.sum_squares * static_cast<double>(n)));
    CHECK(std::abs(fast.sum_squares / naive.sum_squares - 1) <= 1e-6);
    CHECK(std::abs(sum_squares(n, x.data()) / naive.sum_squares - 1) <= 1e-6);
    CHECK(fast.abs_max == naive.abs_max);
    CHECK(fast.nonfinite == 0);
    CHECK(fast.count == n);

    // An update of weights that are 0 by these numbers: lr -1, no momentum.
    std::vector<float> w(x.size()), v(x.size());
    const WeightChange change =
        kernels<float>().update(n, AlongDirection<float>{1, -1}, x.data(), w.data(), v.data(), v.data());
    CHECK(change.before == 0);
    CHECK(std::abs(change.change / naive.sum_squares - 1) <= 1e-6);
  };
  for (const Index n : {1, 3, 16, 17, 1000, 40000}) check(n, 2);
  for (const double size : {1e-44, 1e-30, 1e-23, 1e-13, 1e18, 1e25, 1e37}) check(20000, size);
  const std::vector<float> zeros(20000);
  CHECK(sum_squares(20000, zeros.data()) == 0);
  CHECK(tensor_stats(20000, zeros.data()).sum_squares == 0);
  CHECK(tensor_stats<float>(0, nullptr).count == 0);
}

TEST_CASE_TEMPLATE("kernel: statistics count what is not finite, and a NaN does not hide the largest number",
                   Real, float, double) {
  for (const Index n : {1, 3, 16, 17, 1000, 40000}) {
    CAPTURE(n);
    std::vector<Real> x = normals<Real>(n, "x");
    Index bad = 0;
    for (std::size_t i = 0; i < x.size(); i += 3, ++bad) {
      const double values[] = {std::nan(""), infinity, -infinity};
      x[i] = static_cast<Real>(values[i % 9 / 3]);
    }
    const TensorStats stats = tensor_stats(n, x.data());
    CHECK(stats.nonfinite == bad);
    if (n > 3) CHECK(stats.abs_max == infinity);
    if (n == 3) CHECK(stats.abs_max == std::max(std::abs(x[1]), std::abs(x[2])));
  }
  std::vector<Real> x = normals<Real>(50000, "x");
  x[49999] = std::numeric_limits<Real>::quiet_NaN();
  CHECK(tensor_stats<Real>(50000, x.data()).abs_max == tensor_stats<Real>(49999, x.data()).abs_max);
}

TEST_CASE("kernel: optimisers equal their twins") {
  for (const Index n : {1, 17, 1000, 20000}) {
    CAPTURE(n);
    std::vector<WeightChange> changes;  // by each rule, of floats and then of doubles
    const auto updated = [&](auto real) {
      using Real = decltype(real);
      const std::vector<Real> g = floats<Real>(n, "g");
      std::vector<Real> w = floats<Real>(n, "w"), m = floats<Real>(n, "m"), v = floats<Real>(n, "v");
      for (Real& x : v) x = std::abs(x);
      Outputs<Real> out;
      const auto update = [&](const std::string& name, const UpdateRule<Real>& rule) {
        changes.push_back(kernels<Real>().update(n, rule, g.data(), w.data(), m.data(), v.data()));
        out["w after " + name] = w, out["m after " + name] = m, out["v after " + name] = v;
      };
      update("AdamW", AdamW<Real>{0.7f, 0.9f, 0.99f, 0.1f, 0.01f, 1e-8f, 0.999f, 0.01f, 2});
      update("Sgd", Sgd<Real>{0.7f, 0.9f, 0.999f, 0.01f});
      update("AlongDirection", AlongDirection<Real>{0.999f, 0.01f});
      return out;
    };
    compare_with_twin(updated, 1e-6);
    for (const std::size_t i : {0, 1, 2}) {
      const WeightChange &fast = changes[i], &naive = changes[i + 3];
      CHECK(std::abs(fast.before - naive.before) <= 1e-5 * naive.before);
      CHECK(std::abs(fast.change - naive.change) <= 1e-4 * naive.change);
    }
  }
}

TEST_CASE("kernel: numbers are rounded to the nearest bf16, ties to even, and NaN stays NaN, in every place") {
  // Ties, the largest float, infinities, NaN of any payload.
  const std::uint32_t special[] = {0x3F808000U, 0x3F818000U, 0x3F808001U, 0x7F7FFFFFU, 0x7F800000U, 0xFF800000U,
                                   0x7FC00000U, 0x7F800001U, 0x7FFFFFFFU, 0xFFFFFFFFU, 0x7FFF8001U};
  for (const InstructionSet& set : instruction_sets()) {
    if (!set.is_supported) continue;
    CAPTURE(set.name);
    for (const Index cols : {1, 2, 7, 32, 75}) {
      const Index rows = 3, ldx = cols + 1, ld_out = cols + 3;
      std::vector<float> x = normals<float>(rows * ldx, "x");
      for (std::size_t i = 0; i < x.size() && i < std::size(special); ++i) x[i] = std::bit_cast<float>(special[i]);
      std::vector<float> out(static_cast<std::size_t>(rows * ld_out), -7);
      set.kernels->round_to_bf16(rows, cols, x.data(), ldx, out.data(), ld_out);
      for (Index i = 0; i < rows * ld_out; ++i) {
        const Index row = i / ld_out, col = i % ld_out;
        const float expected = col < cols ? nearest_bf16(x[row * ldx + col]) : -7;
        CHECK((out[i] == expected || (std::isnan(out[i]) && std::isnan(expected))));
      }
    }
  }
}

TEST_CASE_TEMPLATE("kernel: statistics have the same bits at any thread count", Real, float, double) {
  const Index n = 70001;
  const std::vector<Real> a = normals<Real>(n, "a"), b = normals<Real>(n, "b");
  CHECK(same_bits_at_any_thread_count([&] {
    const TensorStats stats = tensor_stats(n, a.data());
    return std::vector<double>{dot(n, a.data(), b.data()), stats.sum, stats.sum_squares, stats.abs_max};
  }));
}
