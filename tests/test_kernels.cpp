// The fast kernels of norms, cross-entropy, sums, statistics and updates against their naive twins.
#include <string>

#include "core/error.h"
#include "core/parallel.h"
#include "helpers.h"
#include "kernels/column_norm.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/reference/cross_entropy.h"
#include "kernels/reference/elementwise.h"
#include "kernels/reference/norm.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// What a norm is run on, and what comes out. The gradient's destination holds NaN where beta is 0.
template <class Real>
struct NormCase {
  RowNorm<Real> norm;
  Index rows;
  bool has_gain, has_bias;
  Real beta;

  std::vector<Real> x = normals<Real>(rows * norm.cols, "x", 1.5, 0.7);
  std::vector<Real> gain = normals<Real>(norm.cols, "gain", 0.4, 1);
  std::vector<Real> bias = normals<Real>(norm.cols, "bias");
  std::vector<Real> dy = normals<Real>(rows * norm.cols, "dy");

  const Real* gain_data() const { return has_gain ? gain.data() : nullptr; }
  const Real* bias_data() const { return has_bias ? bias.data() : nullptr; }

  struct Result {
    std::vector<Real> y, mean, rstd, dx, dgain, dbias;
  };
  Result blank() const {
    const Index size = rows * norm.cols, groups = rows * norm.groups;
    return {nans<Real>(size),
            nans<Real>(groups),
            nans<Real>(groups),
            beta == 0 ? nans<Real>(size) : normals<Real>(size, "old dx"),
            normals<Real>(norm.cols, "old dgain"),
            normals<Real>(norm.cols, "old dbias")};
  }

  Result fast() const {
    Result r = blank();
    std::vector<Real> partials = nans<Real>(2 * norm_blocks(rows) * norm.cols);
    norm_forward(norm, rows, x.data(), gain_data(), bias_data(), r.y.data(), r.mean.data(), r.rstd.data());
    norm_backward(norm, rows, x.data(), r.mean.data(), r.rstd.data(), gain_data(), dy.data(), r.dx.data(),
                  beta, has_gain ? r.dgain.data() : nullptr, has_bias ? r.dbias.data() : nullptr,
                  partials.data());
    return r;
  }
  Result naive() const {
    Result r = blank();
    reference::norm_forward(norm, rows, x.data(), gain_data(), bias_data(), r.y.data(), r.mean.data(),
                            r.rstd.data());
    reference::norm_backward(norm, rows, x.data(), gain_data(), dy.data(), r.dx.data(), beta,
                             has_gain ? r.dgain.data() : nullptr, has_bias ? r.dbias.data() : nullptr);
    return r;
  }

  void compare(double tolerance) const {
    const Result a = fast(), b = naive();
    CAPTURE(norm.cols);
    CAPTURE(norm.groups);
    CAPTURE(norm.centred);
    CAPTURE(norm.eps_outside);
    CAPTURE(rows);
    CHECK(scaled_error(a.y, b.y) <= tolerance);
    CHECK(scaled_error(a.rstd, b.rstd) <= tolerance);
    CHECK(scaled_error(a.mean, b.mean) <= tolerance);
    // An RMS norm of one number is nearly constant: its slope is what little is left of a difference.
    CHECK(scaled_error(a.dx, b.dx) <= (norm.cols == 1 ? 5 * tolerance : tolerance));
    CHECK(scaled_error(a.dgain, b.dgain) <= tolerance);
    CHECK(scaled_error(a.dbias, b.dbias) <= tolerance);
  }
};

template <class Real>
std::vector<Real> joined(std::initializer_list<std::vector<Real>> parts) {
  std::vector<Real> all;
  for (const std::vector<Real>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

TEST_CASE("parallel: a thread takes its own share of blocks first, then what is left, each block once") {
  for (const int threads : {1, 2, 3, 64, 100}) {
    for (const Index blocks : {Index{1}, Index{2}, Index{7}, Index{200}}) {
      CAPTURE(threads);
      CAPTURE(blocks);
      BlockShares shares(blocks, threads);
      std::vector<int> taken(static_cast<std::size_t>(blocks));
      const int last = threads - 1;  // alone, it helps all the others out
      std::vector<Index> order;
      shares.each(last, [&](Index b) {
        order.push_back(b);
        ++taken[static_cast<std::size_t>(b)];
      });
      shares.each(0, [&](Index b) { ++taken[static_cast<std::size_t>(b)]; });
      CHECK(taken == std::vector<int>(static_cast<std::size_t>(blocks), 1));
      if (threads <= 3 && blocks >= threads) CHECK(order.front() == blocks * last / threads);
    }
  }
}

TEST_CASE("parallel: an exception in a thread leaves the loop as an exception") {
  for (const int threads : {1, 2, 4}) {
    const ThreadCount count(threads);
    for (const Index bad : {Index{0}, Index{99}}) {
      const auto loop = [&] {
        parallel_each(Index{100}, [&](Index i) { require(i != bad, "loop", "item ", i); });
      };
      CHECK_THROWS_WITH_AS(loop(), text("[loop] item ", bad).c_str(), Error);
    }
    CHECK_THROWS_AS(in_parallel_region([] { throw std::bad_alloc(); }), std::bad_alloc);
    std::atomic<int> sum = 0;
    parallel_each(Index{100}, [&](Index i) { sum += static_cast<int>(i); });
    CHECK(sum == 4950);
  }
}

TEST_CASE_TEMPLATE("kernel: norms equal their twin", Real, float, double) {
  const double tolerance = pick<Real>(2e-6, 1e-13);
  for (const Index cols : {1, 3, 16, 17, 64, 100, 384}) {
    for (const Index groups : {1, 4}) {
      if (cols % groups != 0) continue;
      for (const bool centred : {true, false}) {
        for (const bool outside : {false, true}) {
          const RowNorm<Real> norm{cols, groups, centred, Real(0.01), outside};
          for (const bool affine : {true, false}) {
            const Real beta = affine ? Real(0) : Real(1);
            NormCase<Real>{norm, 5, affine, affine && centred, beta}.compare(tolerance);
          }
          if (cols <= 64) NormCase<Real>{norm, 70, true, true, Real(1)}.compare(tolerance);
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("kernel: norms of a row far from zero keep their accuracy", Real, float, double) {
  NormCase<Real> test{{100, 1, true, Real(1e-5), false}, 3, true, true, Real(0)};
  for (Real& x : test.x) x += Real(1000);  // two passes: no difference of large squares
  test.compare(pick<Real>(2e-4, 1e-12));
}

TEST_CASE_TEMPLATE("kernel: norms of constant and of zero rows", Real, float, double) {
  for (const bool outside : {false, true}) {
    for (const Real value : {Real(0), Real(3)}) {
      NormCase<Real> test{{17, 1, true, Real(1e-5), outside}, 2, true, true, Real(0)};
      std::fill(test.x.begin(), test.x.end(), value);
      const auto result = test.fast();
      CHECK(all_finite(result.y));
      CHECK(all_finite(result.dx));
      for (std::size_t i = 0; i < 17; ++i) CHECK(result.y[i] == test.bias[i]);
      test.compare(pick<Real>(2e-6, 1e-13));
    }
  }
}

TEST_CASE("kernel: norms see nothing in what is constant, however small eps is") {
  const Index n = 192;
  for (const float value : {float(3.3), float(-0.7), float(1e6 / 3)}) {
    NormCase<float> test{{n, 1, true, float(1e-12), false}, 2, true, true, float(0)};
    std::fill(test.x.begin(), test.x.end(), value);
    const auto result = test.fast();
    for (std::size_t i = 0; i < result.y.size(); ++i) CHECK(result.y[i] == test.bias[i % test.bias.size()]);
    std::vector<float> y = nans<float>(n), mean = y, variance = y, rstd = y;
    column_norm_forward<float>({1, n, float(1e-12), false}, n, test.x.data(), nullptr, nullptr, y.data(),
                               mean.data(), variance.data(), rstd.data());
    CHECK(y == std::vector<float>(n));
  }
}

// The mean of x is rounded to a float: so far from zero, x̂ is off by a thousandth. Yet what a norm sends back
// sums to nothing, as it does exactly.
TEST_CASE_TEMPLATE("kernel: the gradient of a norm's input sums to 0 also where rows lie far from zero", Real,
                   float, double) {
  const Index n = 100;
  NormCase<Real> test{{n, 1, true, Real(1e-12), false}, 1, false, false, Real(0)};
  for (Real& x : test.x) x = Real(1000) + x / 100;
  const auto sum_is_zero = [](const std::vector<Real>& dx) {
    double sum = 0, size = 0;
    for (const Real d : dx) sum += d, size += std::abs(d);
    return std::abs(sum) <= pick<Real>(2e-6, 1e-14) * size;
  };
  CHECK(sum_is_zero(test.fast().dx));
  std::vector<Real> y = nans<Real>(n), mean = y, variance = y, rstd = y, dx = y;
  const ColumnNorm<Real> norm{1, n, Real(1e-12), false};
  column_norm_forward<Real>(norm, n, test.x.data(), nullptr, nullptr, y.data(), mean.data(), variance.data(),
                            rstd.data());
  column_norm_backward<Real>(norm, n, test.x.data(), mean.data(), rstd.data(), nullptr, test.dy.data(),
                             dx.data(), 0, nullptr, nullptr);
  CHECK(sum_is_zero(dx));
}

TEST_CASE_TEMPLATE("kernel: a NaN or an infinity spoils its own row of a norm and no other", Real, float,
                   double) {
  for (const double bad : {std::nan(""), infinity, -infinity}) {
    for (const Index column : {0, 15, 16}) {
      NormCase<Real> test{{17, 1, true, Real(1e-5), false}, 3, true, true, Real(0)};
      test.x[static_cast<std::size_t>(17 + column)] = static_cast<Real>(bad);
      const auto result = test.fast();
      for (std::size_t i = 0; i < result.y.size(); ++i) {
        CHECK(std::isnan(result.y[i]) == (i / 17 == 1));
        CHECK(std::isnan(result.dx[i]) == (i / 17 == 1));
      }
    }
  }
}

TEST_CASE_TEMPLATE("kernel: cross-entropy equals its twin", Real, float, double) {
  const double tolerance = pick<Real>(5e-7, 1e-14);
  for (const Index classes : {1, 3, 16, 17, 65, 384}) {
    for (const Index rows : {1, 5, 70}) {
      for (const Real beta : {Real(0), Real(1)}) {
        const std::vector<Real> logits = normals<Real>(rows * classes, "logits", 3);
        const std::vector<std::int32_t> targets = integers(rows, classes, "targets");
        const auto run = [&](bool fast) {
          std::vector<Real> loss = nans<Real>(rows);
          SoftmaxRows<Real> softmax(rows);
          std::vector<Real> d = beta == 0 ? nans<Real>(rows * classes) : normals<Real>(rows * classes, "old");
          if (fast) {
            cross_entropy_forward(rows, classes, logits.data(), targets.data(), loss.data(), softmax.stats());
            cross_entropy_backward(rows, classes, logits.data(), targets.data(), softmax.stats(), Real(0.3),
                                   d.data(), beta);
          } else {
            reference::cross_entropy_forward(rows, classes, logits.data(), targets.data(), loss.data(),
                                             softmax.stats());
            reference::cross_entropy_backward(rows, classes, logits.data(), targets.data(), Real(0.3),
                                              d.data(), beta);
          }
          return std::vector{loss, softmax.max, softmax.sum, d};
        };
        const auto a = run(true), b = run(false);
        CAPTURE(classes);
        CAPTURE(rows);
        // Absolute, with what subtraction leaves of numbers as large as the logits.
        CHECK(largest_difference(a[0], b[0]) <= 10 * tolerance);
        CHECK(same_bits(a[1], b[1]));
        CHECK(scaled_error(a[2], b[2]) <= tolerance);
        CHECK(largest_difference(a[3], b[3]) <= tolerance);
      }
    }
  }
}

TEST_CASE_TEMPLATE("kernel: what is added to all logits does not cost the loss or its gradient digits", Real,
                   float, double) {
  const Index rows = 9, classes = 65;
  const std::vector<std::int32_t> targets = integers(rows, classes, "targets");
  const auto run = [&](Real offset) {
    std::vector<Real> logits = normals<Real>(rows * classes, "logits"), loss = nans<Real>(rows);
    for (Real& x : logits) x = offset + std::round(x * 64) / 64;  // sums are exact
    SoftmaxRows<Real> softmax(rows);
    std::vector<Real> d = nans<Real>(rows * classes);
    cross_entropy_forward(rows, classes, logits.data(), targets.data(), loss.data(), softmax.stats());
    cross_entropy_backward(rows, classes, logits.data(), targets.data(), softmax.stats(), Real(1), d.data(),
                           Real(0));
    return std::vector{loss, d};
  };
  CHECK(run(0) == run(1000));
}

TEST_CASE_TEMPLATE("kernel: log-sum-exp of extreme logits", Real, float, double) {
  const Index classes = 21;
  for (const Real base : {Real(1e4), Real(-1e4), Real(0)}) {
    std::vector<Real> logits(static_cast<std::size_t>(2 * classes), base);
    logits[static_cast<std::size_t>(classes)] = base + Real(2e4);
    const std::int32_t targets[] = {20, 20};
    Real loss[2];
    SoftmaxRows<Real> softmax(2);
    cross_entropy_forward<Real>(2, classes, logits.data(), targets, loss, softmax.stats());
    const double ulp = pick<Real>(1e-7, 2e-16) * 3e4;
    CHECK(std::abs(loss[0] - std::log(21.0)) <= ulp);
    CHECK(std::abs(loss[1] - 2e4) <= ulp);

    std::vector<Real> d = nans<Real>(2 * classes);
    cross_entropy_backward<Real>(2, classes, logits.data(), targets, softmax.stats(), Real(1), d.data(),
                                 Real(0));
    CHECK(all_finite(d));
    CHECK(std::abs(d[static_cast<std::size_t>(classes)] - 1) <= ulp);  // all weight on the largest
    CHECK(d.back() == Real(-1));
  }
}

TEST_CASE_TEMPLATE("kernel: a non-finite logit makes its loss NaN", Real, float, double) {
  for (const double bad : {std::nan(""), infinity}) {
    for (const Index at : {0, 7, 16}) {
      std::vector<Real> logits = normals<Real>(2 * 17, "logits");
      logits[static_cast<std::size_t>(at)] = static_cast<Real>(bad);
      const std::int32_t targets[] = {3, 3};
      Real loss[2];
      SoftmaxRows<Real> softmax(2);
      cross_entropy_forward<Real>(2, 17, logits.data(), targets, loss, softmax.stats());
      CHECK(!std::isfinite(loss[0]));
      CHECK(std::isfinite(loss[1]));
      std::vector<Real> d = nans<Real>(2 * 17);
      cross_entropy_backward<Real>(2, 17, logits.data(), targets, softmax.stats(), Real(1), d.data(),
                                   Real(0));
      CHECK(std::isnan(d[static_cast<std::size_t>(at)]));
      CHECK(std::isfinite(d[17]));
    }
  }
}

TEST_CASE_TEMPLATE("kernel: sums and products", Real, float, double) {
  const double tolerance = pick<Real>(1e-6, 1e-13);
  for (const Index n : {1, 3, 16, 17, 1000, 40000}) {
    const std::vector<Real> a = normals<Real>(n, "a"), b = normals<Real>(n, "b");
    std::vector<Real> fresh = nans<Real>(n), added = b, sum = nans<Real>(n);
    scale_add(n, Real(0.3), a.data(), Real(0), fresh.data());
    scale_add(n, Real(0.3), a.data(), Real(0.5), added.data());
    weighted_sum(n, Real(0.3), a.data(), b.data(), sum.data());
    std::vector<double> want_fresh, want_added, want_sum;
    double want_dot = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      want_fresh.push_back(0.3 * a[i]);
      want_added.push_back(0.3 * a[i] + 0.5 * b[i]);
      want_sum.push_back(0.3 * a[i] + b[i]);
      want_dot += double{a[i]} * b[i];
      size += std::abs(double{a[i]} * b[i]);
    }
    CAPTURE(n);
    CHECK(scaled_error(fresh, want_fresh) <= tolerance);
    CHECK(scaled_error(added, want_added) <= tolerance);
    CHECK(scaled_error(sum, want_sum) <= tolerance);
    CHECK(std::abs(dot(n, a.data(), b.data()) - want_dot) <= tolerance * size);
  }
}

TEST_CASE_TEMPLATE("kernel: column sums and products of elements", Real, float, double) {
  for (const Index cols : {1, 17, 100}) {
    const Index rows = 37;
    const std::vector<Real> x = normals<Real>(rows * cols, "x"), y = normals<Real>(rows * cols, "y");
    std::vector<Real> sum = normals<Real>(cols, "sum"), product = y;
    std::vector<double> want_sum(sum.begin(), sum.end()), want_product;
    add_rows(rows, cols, x.data(), sum.data());
    multiply(rows * cols, x.data(), product.data(), product.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      want_sum[i % static_cast<std::size_t>(cols)] += x[i];
      want_product.push_back(double{x[i]} * y[i]);
    }
    CHECK(scaled_error(sum, want_sum) <= pick<Real>(1e-6, 1e-13));
    CHECK(scaled_error(product, want_product) <= pick<Real>(1e-6, 1e-13));
  }
}

TEST_CASE("kernel: a sum of many rows is not off by more than one of few") {
  const Index rows = 100000;
  std::vector<float> x = normals<float>(rows, "x", 1, 1), sum(1);
  double want = 0;
  for (const float v : x) want += v;
  add_rows(rows, Index{1}, x.data(), sum.data());
  CHECK(std::abs(sum[0] / want - 1) <= 2e-6);
}

TEST_CASE_TEMPLATE("kernel: moments equal their twin and count what is not finite", Real, float, double) {
  const double tolerance = pick<Real>(1e-6, 1e-13);
  for (const Index n : {1, 3, 16, 17, 1000, 40000}) {
    std::vector<Real> x = normals<Real>(n, "x", 2, 0.5);
    const Moments a = moments(n, x.data()), b = reference::moments(n, x.data());
    CHECK(std::abs(a.sum - b.sum) <= tolerance * std::sqrt(b.sum_squares * static_cast<double>(n)));
    CHECK(std::abs(a.sum_squares - b.sum_squares) <= tolerance * b.sum_squares);
    CHECK(a.abs_max == b.abs_max);
    CHECK(a.nonfinite == 0);
    CHECK(a.count == n);

    Index bad = 0;
    for (std::size_t i = 0; i < x.size(); i += 3, ++bad) {
      const double values[] = {std::nan(""), infinity, -infinity};
      x[i] = static_cast<Real>(values[i % 9 / 3]);
    }
    const Moments c = moments(n, x.data());
    CAPTURE(n);
    CHECK(c.nonfinite == bad);
    CHECK(c.abs_max == reference::moments(n, x.data()).abs_max);  // infinite from the second on
  }
  std::vector<Real> x = normals<Real>(50000, "x");
  x[49999] = std::numeric_limits<Real>::quiet_NaN();
  const double largest = reference::moments<Real>(49999, x.data()).abs_max;
  CHECK(moments<Real>(50000, x.data()).abs_max == largest);  // a NaN does not hide the largest number
  CHECK(moments<Real>(0, nullptr).count == 0);
}

TEST_CASE("kernel: sums of squares that no float holds") {
  const Index n = 20000;
  for (const double size : {1e-44, 1e-30, 1e-23, 1e-13, 1e18, 1e25, 1e37}) {
    const std::vector<float> x = normals<float>(n, "x", size);
    const Moments want = reference::moments(n, x.data()), got = moments(n, x.data());
    CAPTURE(size);
    CHECK(std::abs(sum_squares(n, x.data()) / want.sum_squares - 1) <= 1e-6);
    CHECK(std::abs(got.sum_squares / want.sum_squares - 1) <= 1e-6);
    CHECK(std::abs(got.sum - want.sum) <= 1e-6 * std::sqrt(want.sum_squares * static_cast<double>(n)));
    CHECK(got.abs_max == want.abs_max);
    CHECK(got.nonfinite == 0);

    // An update by so much: lr 1, and no momentum.
    std::vector<float> w(x.size()), v(x.size());
    const WeightChange change = sgd(n, Sgd<float>{-1, 0, 1, 1}, x.data(), w.data(), v.data());
    CHECK(change.before == 0);
    CHECK(std::abs(change.change / want.sum_squares - 1) <= 1e-6);
  }
  const std::vector<float> zeros(n);
  CHECK(sum_squares(n, zeros.data()) == 0);
  CHECK(moments(n, zeros.data()).sum_squares == 0);
}

TEST_CASE_TEMPLATE("kernel: optimisers equal their twins", Real, float, double) {
  const double tolerance = pick<Real>(1e-6, 1e-13);
  for (const Index n : {1, 17, 1000, 20000}) {
    const std::vector<Real> g = normals<Real>(n, "g");
    std::vector<Real> w = normals<Real>(n, "w"), m = normals<Real>(n, "m"), v = normals<Real>(n, "v");
    for (Real& x : v) x = x * x;
    std::vector<Real> w2 = w, m2 = m, v2 = v;
    const AdamW<Real> adam{Real(0.7),  Real(0.9),   Real(0.99), Real(0.1), Real(0.01),
                           Real(1e-8), Real(0.999), Real(0.01), Real(2)};
    adamw(n, adam, g.data(), w.data(), m.data(), v.data());
    reference::adamw(n, adam, g.data(), w2.data(), m2.data(), v2.data());
    CHECK(scaled_error(w, w2) <= tolerance);
    CHECK(scaled_error(m, m2) <= tolerance);
    CHECK(scaled_error(v, v2) <= tolerance);

    const Sgd<Real> momentum{Real(0.7), Real(0.9), Real(0.999), Real(0.01)};
    sgd(n, momentum, g.data(), w.data(), m.data());
    reference::sgd(n, momentum, g.data(), w2.data(), m2.data());
    CHECK(scaled_error(w, w2) <= tolerance);
    CHECK(scaled_error(m, m2) <= tolerance);
  }
}

TEST_CASE_TEMPLATE("kernel: same bits at any thread count", Real, float, double) {
  const Index n = 70001;
  const std::vector<Real> a = normals<Real>(n, "a"), b = normals<Real>(n, "b");
  CHECK(same_bits_at_any_thread_count([&] {
    const auto r = NormCase<Real>{{64, 4, true, Real(1e-5), false}, 130, true, true, Real(1)}.fast();
    return joined({r.y, r.mean, r.rstd, r.dx, r.dgain, r.dbias});
  }));
  CHECK(same_bits_at_any_thread_count([&] {
    const std::vector<std::int32_t> targets = integers(1000, 70, "targets");
    std::vector<Real> loss(1000), d(70000);
    SoftmaxRows<Real> rows(1000);
    cross_entropy_forward<Real>(1000, 70, a.data(), targets.data(), loss.data(), rows.stats());
    cross_entropy_backward<Real>(1000, 70, a.data(), targets.data(), rows.stats(), Real(1), d.data(),
                                 Real(0));
    return joined({loss, rows.max, rows.sum, d});
  }));
  CHECK(same_bits_at_any_thread_count([&] {
    std::vector<Real> scaled = b, sum(a.size()), columns(700), product(a.size());
    scale_add(n, Real(0.3), a.data(), Real(1), scaled.data());
    weighted_sum(n, Real(0.3), a.data(), b.data(), sum.data());
    add_rows<Real>(100, 700, a.data(), columns.data());
    multiply(n, a.data(), b.data(), product.data());
    return joined({scaled, sum, columns, product});
  }));
  CHECK(same_bits_at_any_thread_count([&] {
    const Moments m = moments(n, a.data());
    return std::vector<double>{dot(n, a.data(), b.data()), m.sum, m.sum_squares, m.abs_max};
  }));
  CHECK(same_bits_at_any_thread_count([&] {
    std::vector<Real> w = b, m(a.size()), v(a.size()), u = b, momentum(a.size());
    adamw(n, AdamW<Real>{1, Real(0.9), Real(0.99), Real(0.1), Real(0.01), Real(1e-8), 1, Real(0.1), 1},
          a.data(), w.data(), m.data(), v.data());
    sgd(n, Sgd<Real>{1, Real(0.9), 1, Real(0.1)}, a.data(), u.data(), momentum.data());
    return joined({w, m, v, u, momentum});
  }));
}
