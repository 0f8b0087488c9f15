// The fused attention against its twin, which writes down every weight.
#include "helpers.h"
#include "kernels/attention.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

struct AttentionSetup {
  Index sequences, heads, head_dim, context;
  double dropout = 0;
  float beta = 0;
  Precision precision = Precision::fp32;
  Index queries = context;  // the last ones of each sequence; fewer than `context` have no backward
  bool keeps_stats = true, measures_heads = false;

  Index width() const { return heads * head_dim; }
  Index rows() const { return sequences * context; }
};

// The inputs of attention: q, k and v side by side in one tensor, as the model has them.
template <class Real>
struct AttentionCase {
  AttentionSetup setup;
  Index width = setup.width(), rows = setup.rows();
  std::vector<Real> qkv = floats<Real>(rows * 3 * width, "qkv", 1.3),
                    dout = floats<Real>(rows * width, "dout");

  // q, k or v of a tensor of all three.
  Matrix<Real> part(std::vector<Real>& all, Index number) const {
    return Matrix<Real>(all.data(), rows, 3 * width).part(0, number * width, rows, width);
  }

  Outputs<Real> run() const {
    const auto& [sequences, heads, head_dim, context, dropout, beta, precision, queries, keeps_stats,
                 measures_heads] = setup;
    const Index query_rows = sequences * queries;
    Outputs<Real> out = {{"out", nans<Real>(query_rows * width)}};
    std::vector<Real> in = qkv, d = dout;
    std::vector<HeadStats> head_stats(sequences * heads);
    Attention<Real> attention{.sequences = sequences,
                              .heads = heads,
                              .q = part(in, 0).part(rows - query_rows, 0, query_rows, width),
                              .k = part(in, 1),
                              .v = part(in, 2),
                              .out = {out["out"].data(), query_rows, width},
                              .dropout = dropout,
                              .dropout_stream = RandomStream(1, "dropout"),
                              .first_sequence = 2,
                              .head_stats = measures_heads ? head_stats.data() : nullptr,
                              .precision = precision};
    if (keeps_stats) {
      out["max"] = out["sum"] = nans<Real>(query_rows * heads);
      attention.stats = {out["max"].data(), out["sum"].data()};
    }
    attention_forward(attention);
    if (queries == context) {
      std::vector<Real>& dqkv = out["dqkv"];
      dqkv = beta == 0 ? nans<Real>(std::ssize(in)) : floats<Real>(std::ssize(in), "old");
      attention_backward(attention, {.out = {d.data(), rows, width},
                                     .q = part(dqkv, 0),
                                     .k = part(dqkv, 1),
                                     .v = part(dqkv, 2),
                                     .beta = beta});
    }
    for (const HeadStats& head : head_stats) {
      if (!measures_heads) break;
      CHECK(head.queries == queries);
      const double n = static_cast<double>(head.queries);
      out["largest logits"].push_back(static_cast<Real>(head.max_logit));
      out["perplexities of the weights"].push_back(static_cast<Real>(std::exp(head.entropy / n)));
      out["mean weights of the first key"].push_back(static_cast<Real>(head.first_share / n));
    }
    return out;
  }
};

void compare(const AttentionSetup& setup) {
  const bool in_bf16 = setup.precision == Precision::bf16;
  INFO(setup.heads, " heads of ", setup.head_dim, ", ", setup.queries, " queries, ", setup.context,
       " keys, dropout ", setup.dropout, ", in bf16 ", in_bf16);
  compare_with_twin([&](auto real) { return AttentionCase<decltype(real)>{setup}.run(); },
                    in_bf16 ? 2e-2 : 2e-6);
}

}  // namespace

TEST_CASE("kernel: attention equals its twin; with operands rounded to bf16, as nearly as 8 bits allow") {
  for (const Index context : {1, 5, 17, 64, 65, 130}) {
    for (const Index head_dim : {1, 8, 32, 33}) {
      AttentionSetup setup{2, head_dim == 8 ? 3 : 1, head_dim, context};
      setup.beta = context % 2 == 0 ? 1 : 0;
      compare(setup);
      const auto exact = AttentionCase<float>{setup}.run();
      setup.precision = Precision::bf16;
      compare(setup);
      CHECK(AttentionCase<float>{setup}.run().at("out") != exact.at("out"));  // operands were rounded
    }
  }
  for (const Index context : {5, 65, 130}) compare({3, 2, 8, context, 0.3, static_cast<float>(context % 2)});
  // Tiles of 32 queries (AVX-512), and heads whose rows lie so far apart that they are copied.
  for (const Index heads : {1, 16}) compare({1, heads, 33, 258, 0.1, 1});
}

TEST_CASE(
    "kernel: the statistics of attention's heads equal their twins, and measuring them changes no bit") {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const Index context : {1, 5, 64, 130, 275}) {
      for (const double dropout : {0.0, 0.3}) {
        AttentionSetup setup{2, 3, 8, context, dropout, 0, precision};
        const Outputs<float> plain = AttentionCase<float>{setup}.run();
        setup.measures_heads = true;
        compare(setup);
        const Outputs<float> measured = AttentionCase<float>{setup}.run();
        for (const auto& [name, numbers] : plain) CHECK(same_bits(measured.at(name), numbers));
      }
    }
  }
}

TEST_CASE("kernel: attention of few queries to many keys, as in decoding, equals its twin") {
  for (const Index keys : {7, 66, 140, 257}) {
    for (const Index queries : {1, 3, 17, 65}) {
      if (queries >= keys) continue;
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        for (const bool keeps_stats : {false, true})
          compare({1, 2, 8, keys, keys == 66 ? 0.3 : 0, 0, precision, queries, keeps_stats});
      }
    }
  }
}

TEST_CASE("kernel: attention with scores of 1e4 neither overflows nor loses its weights") {
  const auto large = [](auto real) {
    AttentionCase<decltype(real)> test{{1, 1, 4, 20}};
    for (Index row = 0; row < 20; ++row) {  // of 4 numbers of q, 4 of k, 4 of v
      std::fill_n(&test.qkv[row * 12], 4, 100);
      std::fill_n(&test.qkv[row * 12 + 4], 4, row % 2 == 0 ? 50 : -50);
    }
    const auto out = test.run();
    return Outputs<decltype(real)>{{"out", out.at("out")}};
  };
  compare_with_twin(large, 2e-3);  // a float's step at 1e4 is 1e-3
  CHECK(all_finite(large(double()).at("out")));
}

// The gradients of a row of scores sum to 0. If weights summed to 1 ± ulp(score)/2, what is left over would
// be multiplied by what the keys have in common. Here scores near 1600 are exact, and keys differ by little.
TEST_CASE("kernel: large scores do not cost the gradient of queries its digits") {
  const auto query_gradient = [](auto real) {
    using Real = decltype(real);
    AttentionCase<Real> test{{2, 2, 16, 48}};
    for (Index i = 0; i < test.rows * test.width; ++i) {
      Real* row = &test.qkv[i / test.width * 3 * test.width];
      row[i % test.width] = 20;
      Real& key = row[test.width + i % test.width];
      key = 20 + std::round(key * 16) / 64;
    }
    Outputs<Real> out = test.run();
    const Matrix<Real> dq = test.part(out["dqkv"], 0);
    std::vector<Real> numbers;
    for (Index row = 0; row < dq.rows; ++row)
      numbers.insert(numbers.end(), dq.data + row * dq.ld, dq.data + row * dq.ld + dq.cols);
    return Outputs<Real>{{"dq", numbers}};
  };
  compare_with_twin(query_gradient, 1e-4);
}

TEST_CASE_TEMPLATE(
    "kernel: attention of a query to one key sends nothing back to it, however large the values", Real, float,
    double) {
  AttentionCase<Real> test{{2, 2, 8, 1}};
  for (Real& x : test.qkv) x *= Real(1e6);  // nearly 0 times 1e6 twice would not be nearly 0
  const Outputs<Real> out = test.run();
  for (Index row = 0; row < 2; ++row) {
    for (Index i = 0; i < 2 * test.width; ++i) CHECK(out.at("dqkv")[row * 3 * test.width + i] == 0);
  }
}

TEST_CASE_TEMPLATE("kernel: NaN in a query, key or value reaches every output that reads it", Real, float,
                   double) {
  const Index context = 70, bad = 20;
  for (const Index part : {0, 1, 2}) {
    AttentionCase<Real> test{{1, 1, 8, context}};
    test.qkv[bad * 24 + part * 8 + 3] = std::numeric_limits<Real>::quiet_NaN();
    const Outputs<Real> result = test.run();
    for (Index t = 0; t < context; ++t) {
      const Real output = result.at("out")[t * 8 + 3];
      if (part == 0 ? t == bad : t >= bad) CHECK(std::isnan(output));
      // A later value that is NaN shows in its block of queries (0 * NaN), a NaN query or key in no other.
      if (part == 0 ? t != bad : part == 1 && t < bad) CHECK(std::isfinite(output));
    }
  }
}

TEST_CASE_TEMPLATE("kernel: attention reads no later key or value, to the bit", Real, float, double) {
  const Index context = 130, changed = 70;
  AttentionCase<Real> test{{1, 2, 8, context}};
  const auto before = test.run().at("out");
  for (std::size_t i = changed * 48; i < test.qkv.size(); ++i) test.qkv[i] += Real(1);
  const auto after = test.run().at("out");
  for (std::size_t i = 0; i < before.size(); ++i) CHECK((before[i] == after[i]) == (i < changed * 16));
}
