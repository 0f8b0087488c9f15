// The fused attention against its twin, which writes down every weight.
#include "helpers.h"
#include "kernels/attention.h"
#include "kernels/reference/kernels.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

// q, k and v side by side in one tensor, as the model has them.
template <class Real>
struct AttentionCase {
  Index sequences, heads, head_dim, context;
  double dropout = 0;
  Real beta = 0;
  Index first_sequence = 0;
  Precision precision = Precision::fp32;
  HeadStats* head_stats = nullptr;

  Index width = heads * head_dim, rows = sequences * context;
  std::vector<Real> qkv = normals<Real>(rows * 3 * width, "qkv", 1.3);
  std::vector<Real> dout = normals<Real>(rows * width, "dout");

  struct Result {
    std::vector<Real> out;
    SoftmaxRows<Real> softmax;
    std::vector<Real> dqkv;
  };
  // q, k or v of a tensor of all three.
  Matrix<Real> part(const Matrix<Real>& all, Index number) const {
    return all.part(0, number * width, rows, width);
  }
  Attention<Real> attention(const Matrix<Real>& all, const Matrix<Real>& out,
                            SoftmaxStats<Real> stats) const {
    return {.sequences = sequences,
            .heads = heads,
            .q = part(all, 0),
            .k = part(all, 1),
            .v = part(all, 2),
            .out = out,
            .stats = stats,
            .dropout = dropout,
            .dropout_stream = RandomStream(1, "dropout"),
            .first_sequence = first_sequence,
            .head_stats = head_stats,
            .precision = precision};
  }
  AttentionGradients<Real> gradients(const Matrix<Real>& d, const Matrix<Real>& all) const {
    return {.out = d, .q = part(all, 0), .k = part(all, 1), .v = part(all, 2), .beta = beta};
  }
  Result run(bool fast) const {
    Result r{nans<Real>(rows * width), SoftmaxRows<Real>(rows * heads),
             beta == 0 ? nans<Real>(rows * 3 * width) : normals<Real>(rows * 3 * width, "old")};
    std::vector<Real> in = qkv, d = dout;
    const Attention<Real> a =
        attention({in.data(), rows, 3 * width}, {r.out.data(), rows, width}, r.softmax.stats());
    const AttentionGradients<Real> g = gradients({d.data(), rows, width}, {r.dqkv.data(), rows, 3 * width});
    if (fast) {
      attention_forward(a);
      attention_backward(a, g);
    } else {
      reference::attention_forward(a);
      reference::attention_backward(a, g);
    }
    return r;
  }

  void compare(double tolerance) const {
    const Result a = run(true), b = run(false);
    CAPTURE(sequences);
    CAPTURE(heads);
    CAPTURE(head_dim);
    CAPTURE(context);
    CAPTURE(dropout);
    CHECK(scaled_error(a.out, b.out) <= tolerance);
    CHECK(scaled_error(a.softmax.max, b.softmax.max) <= tolerance);
    CHECK(scaled_error(a.softmax.sum, b.softmax.sum) <= tolerance);
    CHECK(scaled_error(a.dqkv, b.dqkv) <= tolerance);
  }
};

}  // namespace

TEST_CASE("kernel: attention equals its twin") {
  for (const Index context : {1, 5, 64, 65, 130}) {
    for (const Index head_dim : {1, 8, 32}) {
      const Index heads = head_dim == 8 ? 3 : 1;
      const float beta = context % 2 == 0 ? 1 : 0;
      AttentionCase<float>{2, heads, head_dim, context, 0, beta}.compare(2e-6);
    }
  }
}

TEST_CASE("kernel: what attention tells of its heads equals its twin, and telling it changes no bit") {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const Index context : {1, 5, 64, 130}) {
      for (const double dropout : {0.0, 0.3}) {
        AttentionCase<float> test{2, 3, 8, context, dropout, 0, 0, precision};
        const AttentionCase<float>::Result plain = test.run(true);
        std::vector<HeadStats> fast(test.sequences * test.heads), want = fast;
        test.head_stats = fast.data();
        const AttentionCase<float>::Result told = test.run(true);
        CHECK(same_bits(told.out, plain.out));
        CHECK(same_bits(told.dqkv, plain.dqkv));
        CHECK(same_bits(told.softmax.max, plain.softmax.max));
        CHECK(same_bits(told.softmax.sum, plain.softmax.sum));
        test.head_stats = want.data();
        test.run(false);
        const double tolerance = precision == Precision::bf16 ? 2e-2 : 2e-6;
        for (std::size_t i = 0; i < fast.size(); ++i) {
          CAPTURE(context);
          CHECK(fast[i].queries == context);
          CHECK(want[i].queries == context);
          CHECK(std::abs(fast[i].max_logit - want[i].max_logit) <=
                tolerance * (1 + std::abs(want[i].max_logit)));
          CHECK(std::abs(fast[i].entropy - want[i].entropy) <= tolerance * static_cast<double>(context));
          CHECK(std::abs(fast[i].first_share - want[i].first_share) <=
                tolerance * static_cast<double>(context));
        }
      }
    }
  }
}

TEST_CASE("kernel: attention with dropout equals its twin") {
  for (const Index context : {5, 65, 130}) {
    AttentionCase<float>{3, 2, 8, context, 0.3, static_cast<float>(context % 2), 2}.compare(2e-6);
  }
}

TEST_CASE("kernel: attention with operands rounded to bf16 is as near as 8 bits let it be") {
  for (const Index context : {1, 5, 17, 64, 65, 130}) {
    for (const Index head_dim : {1, 8, 32, 33}) {
      AttentionCase<float> test{2, 2, head_dim, context, 0, 0, 0, Precision::bf16};
      test.compare(2e-2);
      test.precision = Precision::fp32;
      const auto a = test.run(true);
      test.precision = Precision::bf16;
      CHECK(test.run(true).out != a.out);  // they were rounded
    }
  }
}

TEST_CASE_TEMPLATE("kernel: attention of few queries to many keys, as in decoding", Real, float, double) {
  for (const Index keys : {1, 7, 66, 140}) {
    for (const Index queries : {1, 3, 17, 65}) {
      if (queries > keys) continue;
      const Index heads = 2, head_dim = 8, width = heads * head_dim;
      std::vector<Real> q = normals<Real>(queries * 3 * width, "q");
      std::vector<Real> k = normals<Real>(keys * width, "k"), v = normals<Real>(keys * width, "v");
      const double dropout = keys == 66 ? 0.3 : 0;
      Attention<Real> a{.sequences = 1,
                        .heads = heads,
                        .q = {q.data(), queries, width, 3 * width},
                        .k = {k.data(), keys, width},
                        .v = {v.data(), keys, width},
                        .out = {},
                        .dropout = dropout,
                        .dropout_stream = RandomStream(1, "dropout")};
      std::vector<Real> want = nans<Real>(queries * width);
      SoftmaxRows<Real> want_rows(heads * queries);
      a.out = {want.data(), queries, width};
      a.stats = want_rows.stats();
      reference::attention_forward(a);
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        const bool rounded = precision == Precision::bf16 && std::is_same_v<Real, float>;
        const double tolerance = rounded ? 2e-2 : pick<Real>(2e-6, 1e-13);
        std::vector<Real> out = nans<Real>(queries * width);
        SoftmaxRows<Real> rows(heads * queries);
        a.out = {out.data(), queries, width};
        a.stats = {};
        a.precision = precision;
        attention_forward(a);
        CHECK(scaled_error(out, want) <= tolerance);
        std::ranges::fill(out, std::numeric_limits<Real>::quiet_NaN());
        a.stats = rows.stats();
        attention_forward(a);
        CHECK(scaled_error(out, want) <= tolerance);
        CHECK(scaled_error(rows.max, want_rows.max) <= tolerance);
        CHECK(scaled_error(rows.sum, want_rows.sum) <= tolerance);
      }
    }
  }
}

TEST_CASE_TEMPLATE("kernel: attention with scores of 1e4 neither overflows nor loses its weights", Real,
                   float, double) {
  AttentionCase<Real> test{1, 1, 4, 20};
  for (Index row = 0; row < 20; ++row) {
    for (Index d = 0; d < 8; ++d) {
      test.qkv[static_cast<std::size_t>(row * 12 + d)] = d < 4          ? Real(100)
                                                         : row % 2 == 0 ? Real(50)
                                                                        : Real(-50);
    }
  }
  const auto a = test.run(true), b = test.run(false);
  CHECK(all_finite(a.out));
  CHECK(scaled_error(a.out, b.out) <= pick<Real>(2e-3, 1e-11));  // a float's step at 1e4 is 1e-3
}

// The gradients of a row of scores sum to 0. If weights summed to 1 ± ulp(score)/2, what is left over would
// be multiplied by what the keys have in common. Here scores near 1600 are exact, and keys differ by little.
TEST_CASE("kernel: large scores do not cost the gradient of queries its digits") {
  AttentionCase<float> test{2, 2, 16, 48};
  const auto part_of = [&](std::size_t i) { return static_cast<Index>(i) % (3 * test.width) / test.width; };
  for (std::size_t i = 0; i < test.qkv.size(); ++i) {
    if (part_of(i) == 0) test.qkv[i] = 20;
    if (part_of(i) == 1) test.qkv[i] = 20 + std::round(test.qkv[i] * 16) / 64;
  }
  std::vector<float> dq = test.run(true).dqkv, want = test.run(false).dqkv;
  for (std::size_t i = 0; i < dq.size(); ++i) {
    if (part_of(i) != 0) dq[i] = want[i] = 0;
  }
  CHECK(scaled_error(dq, want) <= 1e-4);
}

TEST_CASE_TEMPLATE(
    "kernel: attention of a query to one key sends nothing back to it, however large the values", Real, float,
    double) {
  AttentionCase<Real> test{2, 2, 8, 1};
  for (Real& x : test.qkv) x *= Real(1e6);  // nearly 0 times 1e6 twice would not be nearly 0
  const auto result = test.run(true);
  for (Index row = 0; row < 2; ++row) {
    for (Index i = 0; i < 2 * test.width; ++i) {
      CHECK(result.dqkv[static_cast<std::size_t>(row * 3 * test.width + i)] == 0);
    }
  }
}

TEST_CASE_TEMPLATE("kernel: NaN in a query, key or value reaches every output that reads it", Real, float,
                   double) {
  const Index context = 70, bad = 20;
  for (const Index part : {0, 1, 2}) {
    AttentionCase<Real> test{1, 1, 8, context};
    test.qkv[static_cast<std::size_t>(bad * 24 + part * 8 + 3)] = std::numeric_limits<Real>::quiet_NaN();
    const auto result = test.run(true);
    for (Index t = 0; t < context; ++t) {
      const Real seen = result.out[static_cast<std::size_t>(t * 8 + 3)];
      if (part == 0 ? t == bad : t >= bad) CHECK(std::isnan(seen));
      // A later value that is NaN shows in its block of queries (0 * NaN), a NaN query or key in no other.
      if (part == 0 ? t != bad : part == 1 && t < bad) CHECK(std::isfinite(seen));
    }
  }
}

TEST_CASE_TEMPLATE("kernel: attention reads no later key or value, to the bit", Real, float, double) {
  const Index context = 130, changed = 70;
  AttentionCase<Real> test{1, 2, 8, context};
  const auto before = test.run(true).out;
  for (std::size_t i = changed * 48; i < test.qkv.size(); ++i) test.qkv[i] += Real(1);
  const auto after = test.run(true).out;
  for (std::size_t i = 0; i < before.size(); ++i) CHECK((before[i] == after[i]) == (i < changed * 16));
}

TEST_CASE_TEMPLATE("kernel: attention has the same bits at any thread count", Real, float, double) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const AttentionCase<Real> test{3, 3, 8, 70, 0.2, 0, 0, precision};
    CHECK(same_bits_at_any_thread_count([&] {
      const auto r = test.run(true);
      std::vector<Real> all = r.out;
      all.insert(all.end(), r.softmax.max.begin(), r.softmax.max.end());
      all.insert(all.end(), r.softmax.sum.begin(), r.softmax.sum.end());
      all.insert(all.end(), r.dqkv.begin(), r.dqkv.end());
      return all;
    }));
  }
}
