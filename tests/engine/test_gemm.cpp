// The matrix product: every provider and instruction set against the naive twin, and the same bits at any
// thread count.
#include <functional>
#include <string>

#include "emulated_amx.h"
#include "helpers.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/schedule.h"
#include "kernels/reference/kernels.h"

namespace normscope {
using namespace testing;
namespace {

template <class Real>
struct Way {
  std::string name;
  std::function<void(const Gemm<Real>&)> compute;
};

template <class Real>
Way<Real> by_provider(const char* name, GemmProvider provider, Precision precision = Precision::fp32) {
  return {name, [=](Gemm<Real> product) {
            product.precision = precision;
            gemm(provider, product);
          }};
}

// The providers of a product and, for floats, the native kernel of each instruction set of this machine.
template <class Real>
std::vector<Way<Real>> fast_ways() {
  std::vector<Way<Real>> ways = {by_provider<Real>("automatic", GemmProvider::automatic),
                                 by_provider<Real>("openblas", GemmProvider::openblas)};
  if constexpr (std::is_same_v<Real, float>) {
    for (const InstructionSet& set : instruction_sets()) {
      if (!set.is_supported) continue;
      ways.push_back({set.name, [&set](const Gemm<float>& g) { gemm_native(set.kernels->gemm, g); }});
    }
  }
  return ways;
}

// The instruction set of this name; null if this machine does not have it.
const InstructionSet* supported(std::string_view name) {
  for (const InstructionSet& set : instruction_sets())
    if (set.name == name && set.is_supported) return &set;
  return nullptr;
}
const bool can_emulate_amx = supported("avx512_bf16") != nullptr;  // the emulated kernel packs by AVX512-BF16

// The macro-kernel of tiles alone, which takes any k at once, from operands packed into memory of just the size that
// the kernel asks for. What is not packed is NaN.
Way<float> by_tiles(const GemmKernel<Bf16Pair>& kernel) {
  return {"macro-kernel of tiles", [&kernel](const Gemm<float>& g) {
            constexpr Bf16Pair nans_of_bf16 = 0x7FFF7FFF;
            const Index m = g.c.rows, n = g.c.cols, steps = packed_steps<Bf16Pair>(g.a.cols);
            const Index stride = scratch_stride<Bf16Pair>(steps);
            std::vector<Bf16Pair> a((m + kernel.mr - 1) * stride, nans_of_bf16),
                b(packed_size(kernel, g.b), nans_of_bf16);
            kernel.pack_a(g.a, a.data(), stride);
            const OperandB<Bf16Pair> packed_b = pack_b(kernel, g.b, b.data());
            const MemoryRange ranges[] = {{a.data(), a.data() + a.size()},
                                          {b.data(), b.data() + b.size()},
                                          {g.c.data, g.c.data + (m - 1) * g.c.ld + n}};
            limit_tiles_to(ranges, std::ssize(ranges));
            kernel.macro_kernel(m, n, steps, {a.data(), stride, false}, packed_b, {1, g.beta, g.c});
            limit_tiles_to(nullptr, 0);
          }};
}

// Operands rounded to bf16: by the kernel of each instruction set of this machine, by that of emulated tiles,
// and on rounded copies.
std::vector<Way<float>> bf16_ways() {
  std::vector<Way<float>> ways = {
      by_provider<float>("native in bf16", GemmProvider::native, Precision::bf16),
      by_provider<float>("openblas in bf16", GemmProvider::openblas, Precision::bf16)};
  for (const InstructionSet& set : instruction_sets()) {
    if (!set.is_supported || set.pairs == nullptr) continue;
    ways.push_back(
        {std::string(set.name) + " in bf16", [&set](const Gemm<float>& g) { gemm_native(*set.pairs, g); }});
  }
  if (can_emulate_amx) {
    ways.push_back({"emulated tiles", [](const Gemm<float>& g) { gemm_native(*emulated_amx(), g); }});
  }
  return ways;
}

std::vector<Way<float>> float_and_bf16_ways() {
  std::vector<Way<float>> ways = fast_ways<float>();
  for (const Way<float>& way : bf16_ways()) ways.push_back(way);
  return ways;
}

struct Shape {
  Index m, n, k;
};

// Operands with random numbers in [-1, 1) and rows `gap` numbers longer than they need to be. The gaps, and
// the numbers of C where beta is 0, are NaN, so that a read of them shows in the result.
template <class Real>
struct Product {
  std::vector<Real> a, b, c;
  Gemm<Real> gemm;

  Product(bool a_transposed, bool b_transposed, const Shape& shape, Real beta, Index gap) {
    const auto matrix = [&](std::vector<Real>& numbers, const char* purpose, bool transposed, Index rows,
                            Index cols) {
      const Index stored_rows = transposed ? cols : rows, stored_cols = transposed ? rows : cols;
      const Index ld = stored_cols + gap;
      const RandomStream random(7, purpose);
      numbers = nans<Real>(stored_rows * ld);
      for (Index i = 0; i < stored_rows; ++i) {
        for (Index j = 0; j < stored_cols; ++j)
          numbers[i * ld + j] = static_cast<Real>(2 * random.uniform(i * stored_cols + j) - 1);
      }
      const Matrix<Real> view{numbers.data(), stored_rows, stored_cols, ld};
      return transposed ? view.t() : view;
    };
    gemm = {.a = matrix(a, "a", a_transposed, shape.m, shape.k),
            .b = matrix(b, "b", b_transposed, shape.k, shape.n),
            .c = matrix(c, "c", false, shape.m, shape.n),
            .beta = beta};
    if (beta == 0) c.assign(c.size(), std::numeric_limits<Real>::quiet_NaN());
  }
  Product(const Product&) = delete;

  template <class Change>
  void change_operands(Change change) {
    for (std::vector<Real>* operand : {&a, &b})
      for (Real& x : *operand) x = static_cast<Real>(change(static_cast<float>(x)));
  }

  // C as `compute` leaves it.
  template <class Compute>
  std::vector<Real> computed_by(const Compute& compute) const {
    std::vector<Real> result = c;
    Gemm<Real> g = gemm;
    g.c.data = result.data();
    compute(g);
    return result;
  }

  // The largest error of a result in the elements of C; infinite where it is NaN, and where a gap was
  // written.
  double largest_error(const std::vector<Real>& result, const std::vector<Real>& expected) const {
    double largest = 0;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const bool in_gap = static_cast<Index>(i) % gemm.c.ld >= gemm.c.cols;
      const double error = std::abs(static_cast<double>(result[i]) - static_cast<double>(expected[i]));
      if (in_gap ? !std::isnan(result[i]) : !std::isfinite(error))
        return std::numeric_limits<double>::infinity();
      if (!in_gap) largest = std::max(largest, error);
    }
    return largest;
  }
};

template <class Real>
void compare_ways(const Shape& shape, Real beta, Index gap, const std::vector<Way<Real>>& ways,
                  bool in_bf16 = false) {
  // Terms are at most 1: k roundings of sums that grow like sqrt(k), with room to spare.
  const double tolerance =
      static_cast<double>(std::numeric_limits<Real>::epsilon()) * (4 + 2 * static_cast<double>(shape.k));
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      Product<Real> product(a_transposed, b_transposed, shape, beta, gap);
      if (in_bf16) product.change_operands([](float x) { return std::round(x * 512) / 512; });  // with ties
      std::vector<std::vector<Real>> results;
      for (const Way<Real>& way : ways) results.push_back(product.computed_by(way.compute));
      if (in_bf16) product.change_operands(nearest_bf16);
      const std::vector<Real> expected = product.computed_by(reference::gemm<Real>);
      for (std::size_t i = 0; i < ways.size(); ++i) {
        INFO(ways[i].name, " ", shape.m, 'x', shape.n, 'x', shape.k, " transposed ", a_transposed,
             b_transposed, " beta ", beta, " gap ", gap);
        CHECK(product.largest_error(results[i], expected) <= tolerance);
      }
    }
  }
}

// Ones; odd and even k; edges of register tiles (6 or 14 rows; 4 to 32 columns), of blocks of k (512; 1024 in
// bf16); long k; rows of whole pages; several tiles in both directions; many bands; split-K;
// bands of a transposed A that AVX-512 copies too; panels that the L2 cache does not hold at once.
constexpr Shape shapes[] = {{1, 1, 1},      {1, 33, 7},    {5, 1, 64},     {6, 8, 3},      {7, 9, 2},
                            {7, 9, 16},     {13, 31, 17},  {14, 32, 32},   {15, 33, 511},  {29, 65, 512},
                            {43, 15, 513},  {64, 64, 32},  {128, 32, 64},  {65, 128, 97},  {3, 17, 4099},
                            {65, 530, 40},  {230, 70, 40}, {40, 70, 1024}, {20, 70, 1025}, {20, 70, 2201},
                            {270, 290, 33}, {13, 290, 512}};

}  // namespace

TEST_CASE_TEMPLATE("gemm: every provider and instruction set is the naive twin", Real, float, double) {
  const std::vector<Way<Real>> ways = fast_ways<Real>();
  for (const Shape& shape : shapes)
    for (const Index gap : {0, 5}) compare_ways<Real>(shape, 0, gap, ways);
  for (const Real beta : {Real(1), Real(0.5), Real(-1)}) compare_ways<Real>({31, 45, 600}, beta, 3, ways);
}

TEST_CASE("gemm: bf16 is the naive twin of operands rounded to the nearest, ties to even") {
  std::vector<Way<float>> ways = bf16_ways();
  if (can_emulate_amx) ways.push_back(by_tiles(*emulated_amx()));
  if (const InstructionSet* amx = supported("avx512_amx")) ways.push_back(by_tiles(*amx->pairs));
  for (const Shape& shape : shapes)
    for (const Index gap : {0, 5}) compare_ways<float>(shape, 0, gap, ways, true);
  for (const float beta : {1.0f, -0.5f}) compare_ways<float>({31, 45, 601}, beta, 3, ways, true);
  CHECK(fault_of_tiles() == std::string());
}

TEST_CASE("gemm: emulated tiles notice an access outside the operands" * doctest::skip(!can_emulate_amx)) {
  std::vector<Bf16Pair> a(32 * 16), b(32 * 16);
  std::vector<float> c(32 * 32);
  for (const Index missing : {0, 1}) {
    const MemoryRange ranges[] = {{a.data(), a.data() + a.size() - missing},
                                  {b.data(), b.data() + b.size()},
                                  {c.data(), c.data() + c.size()}};
    limit_tiles_to(ranges, std::ssize(ranges));
    emulated_amx()->macro_kernel(32, 32, 16, {a.data(), 16, false}, {b.data(), 32, 0},
                                 {1, 0, {c.data(), 32, 32}});
    limit_tiles_to(nullptr, 0);
    CHECK(fault_of_tiles() == std::string(missing == 0 ? "" : "memory outside the operands"));
  }
}

TEST_CASE("gemm: a product without elements changes nothing, one without terms is beta C and the epilogue") {
  for (const GemmProvider provider :
       {GemmProvider::openblas, GemmProvider::native, GemmProvider::reference}) {
    CAPTURE(static_cast<int>(provider));
    std::vector<float> c = {1, 2, 3, 4}, bias = {-1, 1}, derivative(4);
    const auto product = [&](Index m, Index n, Index k, float beta, const Epilogue<float>& epilogue = {}) {
      float none = 0;
      gemm<float>(provider, {.a = {&none, m, k},
                             .b = {&none, k, n},
                             .c = {c.data(), m, n},
                             .beta = beta,
                             .epilogue = epilogue});
    };
    product(0, 2, 2, 0);
    product(2, 0, 2, 0);
    CHECK(c == std::vector<float>{1, 2, 3, 4});
    product(2, 2, 0, 0.5f, {bias.data(), {derivative.data(), 2, 2}, Activation::relu});
    CHECK(c == std::vector<float>{0, 2, 0.5f, 3});
    CHECK(derivative == std::vector<float>{0, 1, 1, 1});
    c = nans<float>(4);
    product(2, 2, 0, 0);
    CHECK(c == std::vector<float>(4, 0.0f));
  }
}

TEST_CASE("gemm: bias and activation follow the finished sums, in every tile") {
  std::vector<Way<float>> ways = fast_ways<float>();
  ways.push_back(by_provider<float>("reference", GemmProvider::reference));
  for (const Activation kind : {Activation::relu, Activation::gelu}) {
    for (const Shape& shape : {Shape{1, 1, 3}, Shape{17, 33, 5}, Shape{33, 130, 1100}}) {
      Product<float> product(false, true, shape, 1, 3);
      const Index ld = product.gemm.c.ld;
      const std::vector<float> bias = normals<float>(ld, "bias");
      std::vector<float> sums = product.computed_by(reference::gemm<float>);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += bias[i % ld];
      for (const Way<float>& way : ways) {
        CAPTURE(way.name);
        CAPTURE(shape.m);
        std::vector<float> derivatives = nans<float>(std::ssize(sums));
        product.gemm.epilogue = {bias.data()};
        const std::vector<float> biased = product.computed_by(way.compute);
        product.gemm.epilogue = {bias.data(), {derivatives.data(), shape.m, shape.n, ld}, kind};
        const std::vector<float> activated = product.computed_by(way.compute);
        product.gemm.epilogue = {};
        std::vector<float> values, slopes;
        for (const float x : biased) {
          values.push_back(static_cast<float>(ActivationAt(kind, x).value));
          slopes.push_back(static_cast<float>(ActivationAt(kind, x).derivative));
        }
        CHECK(product.largest_error(biased, sums) <= 1e-4);
        CHECK(product.largest_error(activated, values) <= 1e-6);
        CHECK(product.largest_error(derivatives, slopes) <= 1e-6);
      }
    }
  }
}

TEST_CASE("gemm: NaN in an operand reaches its row of C and no other") {
  for (const Way<float>& way : float_and_bf16_ways()) {
    CAPTURE(way.name);
    Product<float> product(false, true, {30, 40, 50}, 0, 0);
    product.a[17 * 50 + 49] = std::nanf("");
    const std::vector<float> c = product.computed_by(way.compute);
    bool as_expected = true;
    for (std::size_t i = 0; i < c.size(); ++i) as_expected &= std::isnan(c[i]) == (i / 40 == 17);
    CHECK(as_expected);
  }
}

TEST_CASE("gemm: the same bits at any thread count") {
  // Tiles and blocks of k at their edges, B packed by each thread (257 and 770 rows), split-K and columns of
  // a large B (k 1200 and more).
  for (const Shape& shape : {Shape{96, 80, 300}, Shape{257, 100, 130}, Shape{30, 520, 1200},
                             Shape{40, 70, 2048}, Shape{40, 70, 1201}, Shape{770, 33, 50}}) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        const Product<float> product(a_transposed, b_transposed, shape, 1, 0);
        for (const Way<float>& way : float_and_bf16_ways()) {
          CAPTURE(way.name);
          CAPTURE(shape.m);
          CHECK(same_bits_at_any_thread_count([&] { return product.computed_by(way.compute); }));
        }
      }
    }
  }
}

TEST_CASE("gemm: a row of C has the same bits in a product of fewer rows, which is shared out otherwise") {
  const Shape shape{1030, 130, 1100};
  for (const bool b_transposed : {false, true}) {
    Product<float> product(false, b_transposed, shape, 1, 0);
    for (const Way<float>& way : float_and_bf16_ways()) {
      if (way.name.starts_with("openblas")) continue;  // it may sum in another order
      CAPTURE(way.name);
      product.gemm.a.rows = product.gemm.c.rows = shape.m;
      const std::vector<float> whole = product.computed_by(way.compute);
      product.gemm.a.rows = product.gemm.c.rows = 30;
      const std::vector<float> part = product.computed_by(way.compute);
      CHECK(std::equal(whole.begin(), whole.begin() + 30 * shape.n, part.begin()));
    }
  }
}

}  // namespace normscope
