// The matrix product: every provider and instruction set against the naive twin, and the same bits at any
// thread count.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"
#include "helpers.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/schedule.h"
#include "kernels/reference/kernels.h"
#include "kernels/simd.h"

namespace normscope {
using namespace testing;
namespace {

// A way to compute a product: a provider and a precision, or the native kernel of one instruction set.
template <class Real>
struct Way {
  std::string name;
  GemmProvider provider;
  Precision precision = Precision::fp32;
  const GemmKernel<float>* kernel = nullptr;

  void operator()(Gemm<Real> g) const {
    if constexpr (std::is_same_v<Real, float>) {
      if (kernel != nullptr) return gemm_native(*kernel, g);
    }
    g.precision = precision;
    gemm(provider, g);
  }
};

template <class Real>
std::vector<Way<Real>> all_ways() {
  std::vector<Way<Real>> ways = {{"auto", GemmProvider::automatic},
                                 {"openblas", GemmProvider::openblas},
                                 {"native", GemmProvider::native},
                                 {"reference", GemmProvider::reference}};
  if constexpr (std::is_same_v<Real, float>) {
    for (const InstructionSet& set : instruction_sets()) {
      if (set.is_supported)
        ways.push_back({set.name, GemmProvider::native, Precision::fp32, &set.kernels->gemm});
    }
  }
  return ways;
}

// Operands rounded to bf16: by the dot-product instruction, where there is one, and on rounded copies.
std::vector<Way<float>> bf16_ways() {
  return {{"native in bf16", GemmProvider::native, Precision::bf16},
          {"openblas in bf16", GemmProvider::openblas, Precision::bf16}};
}

std::vector<Way<float>> float_and_bf16_ways() {
  std::vector<Way<float>> ways = all_ways<float>();
  for (const Way<float>& way : bf16_ways()) ways.push_back(way);
  return ways;
}

// Operands with random numbers and rows `gap` numbers longer than they need to be. The gaps, and what C holds
// where beta is 0, are NaN: whoever reads them is found out.
template <class Real>
struct Product {
  std::vector<Real> a, b, c;
  Gemm<Real> gemm;

  Product(bool ta, bool tb, Index m, Index n, Index k, Real beta, Index gap) {
    const auto matrix = [&](const char* what, Index rows, Index cols) {
      const RandomStream random(7, what);
      std::vector<Real> v(static_cast<std::size_t>(rows * (cols + gap)), nan());
      for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < cols; ++j) {
          v[static_cast<std::size_t>(i * (cols + gap) + j)] =
              static_cast<Real>(2 * random.uniform(static_cast<std::uint64_t>(i * cols + j)) - 1);
        }
      }
      return v;
    };
    a = ta ? matrix("a", k, m) : matrix("a", m, k);
    b = tb ? matrix("b", n, k) : matrix("b", k, n);
    c = beta == 0 ? std::vector<Real>(static_cast<std::size_t>(m * (n + gap)), nan()) : matrix("c", m, n);
    const auto view = [&](std::vector<Real>& v, bool transposed, Index rows, Index cols) {
      return transposed ? Matrix<Real>{v.data(), cols, rows, rows + gap}.t()
                        : Matrix<Real>{v.data(), rows, cols, cols + gap};
    };
    gemm = {.a = view(a, ta, m, k), .b = view(b, tb, k, n), .c = view(c, false, m, n), .beta = beta};
  }
  Product(const Product&) = delete;

  // C as `way` computes it.
  template <class Way>
  std::vector<Real> by(const Way& way) const {
    std::vector<Real> result = c;
    Gemm<Real> g = gemm;
    g.c.data = result.data();
    way(g);
    return result;
  }

  std::vector<Real> by_twin() const { return by(reference::gemm<Real>); }

  static Real nan() { return std::numeric_limits<Real>::quiet_NaN(); }
};

// The largest difference inside C (m, n); infinite where one is NaN. Outside of C nothing may have changed.
template <class Real>
double largest_error(const Gemm<Real>& g, const std::vector<Real>& got, const std::vector<Real>& expected) {
  double largest = 0;
  for (Index i = 0; i < g.c.rows; ++i) {
    for (Index j = 0; j < g.c.ld; ++j) {
      const auto at = static_cast<std::size_t>(i * g.c.ld + j);
      const double error = std::abs(static_cast<double>(got[at]) - static_cast<double>(expected[at]));
      const bool fine = j < g.c.cols ? error <= std::numeric_limits<double>::max() : std::isnan(got[at]);
      if (!fine) return std::numeric_limits<double>::infinity();
      largest = std::max(largest, error);
    }
  }
  return largest;
}

template <class Real>
void check_against_twin(Index m, Index n, Index k, Real beta, Index gap, const std::vector<Way<Real>>& ways,
                        bool in_bf16 = false) {
  // Terms are at most 1: k roundings of sums that grow like sqrt(k), with room to spare.
  const double tolerance =
      static_cast<double>(std::numeric_limits<Real>::epsilon()) * (4 + 2 * static_cast<double>(k));
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Product<Real> product(ta, tb, m, n, k, beta, gap);
      const auto change_operands = [&](const auto& change) {
        for (std::vector<Real>* operand : {&product.a, &product.b})
          for (Real& x : *operand) x = static_cast<Real>(change(static_cast<float>(x)));
      };
      if (in_bf16) change_operands([](float x) { return std::round(x * 512) / 512; });  // many are ties
      std::vector<std::vector<Real>> results;
      for (const Way<Real>& way : ways) results.push_back(product.by(way));
      if (in_bf16) change_operands(nearest_bf16);
      const std::vector<Real> expected = product.by_twin();
      for (std::size_t i = 0; i < ways.size(); ++i) {
        const double error = largest_error(product.gemm, results[i], expected);
        if (!(error <= tolerance)) {
          FAIL_CHECK(ways[i].name << " " << m << 'x' << n << 'x' << k << " transposed " << ta << tb
                                  << " beta " << beta << " gap " << gap << ": error " << error);
        }
      }
    }
  }
}

struct Shape {
  Index m, n, k;
};

}  // namespace

TEST_CASE_TEMPLATE("gemm: every provider and instruction set is the naive twin", Real, float, double) {
  const std::vector<Way<Real>> ways = all_ways<Real>();
  // Ones; edges of register tiles (6 or 14 rows; 4 to 32 columns), of the grid, of runs of k (512); long k;
  // rows of whole pages; op(B) that is packed in several goes.
  for (const Shape& s :
       {Shape{1, 1, 1}, Shape{1, 33, 7}, Shape{5, 1, 64}, Shape{6, 8, 3}, Shape{7, 9, 16}, Shape{13, 31, 17},
        Shape{14, 32, 32}, Shape{15, 33, 511}, Shape{29, 65, 512}, Shape{43, 15, 513}, Shape{64, 64, 32},
        Shape{128, 32, 64}, Shape{65, 128, 96}, Shape{3, 17, 4099}, Shape{200, 530, 40}, Shape{40, 70, 1024},
        Shape{20, 600, 1100}}) {
    for (const Index gap : {0, 5}) check_against_twin<Real>(s.m, s.n, s.k, Real(0), gap, ways);
  }
}

TEST_CASE("gemm: bf16 is the naive twin of operands rounded to the nearest, ties to even") {
  const std::vector<Way<float>> ways = bf16_ways();
  // Odd and even k, alone and past a run of 2 * 512; edges of tiles; several goes.
  for (const Shape& s : {Shape{1, 1, 1}, Shape{1, 33, 7}, Shape{5, 1, 64}, Shape{7, 9, 2}, Shape{13, 31, 17},
                         Shape{14, 32, 32}, Shape{29, 65, 1024}, Shape{43, 15, 1025}, Shape{128, 32, 64},
                         Shape{65, 128, 97}, Shape{3, 17, 4099}, Shape{200, 530, 40}, Shape{20, 600, 2201}}) {
    for (const Index gap : {0, 5}) check_against_twin<float>(s.m, s.n, s.k, 0, gap, ways, true);
  }
  for (const float beta : {0.0f, 1.0f, -0.5f}) check_against_twin<float>(31, 45, 601, beta, 3, ways, true);
}

TEST_CASE_TEMPLATE("gemm: beta", Real, float, double) {
  for (const Real beta : {Real(0), Real(1), Real(0.5), Real(-1)})
    check_against_twin<Real>(31, 45, 600, beta, 3, all_ways<Real>());
}

TEST_CASE("gemm: products without elements or terms") {
  for (const Way<float>& way : {Way<float>{"openblas", GemmProvider::openblas},
                                {"native", GemmProvider::native},
                                {"reference", GemmProvider::reference}}) {
    CAPTURE(way.name);
    std::vector<float> c = {1, 2, 3, 4};
    const auto product = [&](Index m, Index n, Index k, float beta) {
      float none = 0;
      way({.a = {&none, m, k}, .b = {&none, k, n}, .c = {c.data(), m, n}, .beta = beta});
    };
    product(0, 2, 2, 0);
    product(2, 0, 2, 0);
    CHECK(c == std::vector<float>{1, 2, 3, 4});
    product(2, 2, 0, 0.5f);
    CHECK(c == std::vector<float>{0.5f, 1, 1.5f, 2});
    c.assign(4, Product<float>::nan());
    product(2, 2, 0, 0);
    CHECK(c == std::vector<float>(4, 0.0f));
  }
}

TEST_CASE("gemm: bias and activation follow the finished sums, in every tile") {
  for (const Activation kind : {Activation::relu, Activation::gelu}) {
    for (const Shape& s : {Shape{1, 1, 3}, Shape{17, 33, 5}, Shape{200, 530, 1100}, Shape{4, 7, 0}}) {
      Product<float> product(false, true, s.m, s.n, s.k, 1, 3);
      std::vector<float> bias(static_cast<std::size_t>(s.n));
      for (std::size_t j = 0; j < bias.size(); ++j) bias[j] = 0.1f * static_cast<float>(j % 7);
      const std::vector<float> sums = product.by_twin();
      for (const Way<float>& way : all_ways<float>()) {
        if (s.k == 0 && way.kernel != nullptr) continue;
        CAPTURE(way.name);
        CAPTURE(s.m);
        const Index ldc = product.gemm.c.ld;
        std::vector<float> derivatives(product.c.size());
        product.gemm.epilogue = {bias.data(), {derivatives.data(), s.m, s.n, ldc}, kind};
        const std::vector<float> activated = product.by(way);
        product.gemm.epilogue = {bias.data()};
        const std::vector<float> biased = product.by(way);
        double error = 0;
        for (Index i = 0; i < s.m; ++i) {
          for (Index j = 0; j < s.n; ++j) {
            const auto at = static_cast<std::size_t>(i * ldc + j);
            const double x = sums[at] + bias[static_cast<std::size_t>(j)];
            const auto add = [&](double got, double want) { error = std::max(error, std::abs(got - want)); };
            add(biased[at], x);
            add(activated[at], activation_value(kind, biased[at]));
            add(derivatives[at], activation_derivative(kind, biased[at]));
          }
        }
        CHECK(error <= 1e-4);
      }
      product.gemm.epilogue = {};
    }
  }
}

TEST_CASE("gemm: NaN in an operand reaches its row of C and no other") {
  for (const Way<float>& way : float_and_bf16_ways()) {
    CAPTURE(way.name);
    Product<float> product(false, true, 30, 40, 50, 0, 0);
    product.a[17 * 50 + 49] = Product<float>::nan();
    const std::vector<float> c = product.by(way);
    bool as_expected = true;
    for (std::size_t i = 0; i < c.size(); ++i) as_expected &= std::isnan(c[i]) == (i / 40 == 17);
    CHECK(as_expected);
  }
}

TEST_CASE("gemm: the same bits at any thread count") {
  const int threads_before = thread_count();
  for (const Shape& s : {Shape{96, 80, 300}, Shape{257, 384, 130}, Shape{130, 520, 1200}, Shape{20, 20, 20},
                         Shape{40, 70, 2048}, Shape{40, 70, 1201}, Shape{770, 33, 50}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const Product<float> product(ta, tb, s.m, s.n, s.k, 1, 0);
        for (const Way<float>& way : float_and_bf16_ways()) {
          CAPTURE(way.name);
          CAPTURE(s.m);
          set_thread_count(1);
          const std::vector<float> one = product.by(way);
          for (const int threads : {2, 3, 4}) {
            CAPTURE(threads);
            set_thread_count(threads);
            CHECK(same_bits(one, product.by(way)));
          }
        }
      }
    }
  }
  set_thread_count(threads_before);
}

}  // namespace normscope
