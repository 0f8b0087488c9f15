// The fast kernels of norms, cross-entropy, sums, statistics and updates against their naive twins.
#include <string>

#include "core/error.h"
#include "core/parallel.h"
#include "helpers.h"
#include "kernels/pointwise.h"
#include "kernels/rows.h"
#include "kernels/simd.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<double> in_double(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// The inputs of a norm and its results. The gradient's destination holds NaN where beta is 0. The naive
// twin of the norm of floats is that of doubles.
template <class Real>
struct NormCase {
  LayerNorm<Real> norm;
  Index rows, cols;
  bool has_gain, has_bias;
  Real beta;

  std::vector<Real> x = normals<Real>(rows * cols, "x", 1.5, 0.7);
  std::vector<Real> gain = normals<Real>(cols, "gain", 0.4, 1);
  std::vector<Real> bias = normals<Real>(cols, "bias");
  std::vector<Real> dy = normals<Real>(rows * cols, "dy");
  std::vector<Real> dx = beta == 0 ? nans<Real>(rows * cols) : normals<Real>(rows * cols, "old dx");
  std::vector<Real> dgain = normals<Real>(cols, "old dgain"), dbias = normals<Real>(cols, "old dbias");

  struct Result {
    std::vector<Real> y, mean, rstd, dx, dgain, dbias;
  };
  Result run() const {
    Result r{nans<Real>(rows * cols),
             nans<Real>(rows * norm.groups),
             nans<Real>(rows * norm.groups),
             dx,
             dgain,
             dbias};
    LayerNorm<Real> n = norm;
    n.rows = rows, n.cols = n.stride = cols, n.x = x.data(), n.mean = r.mean.data(), n.rstd = r.rstd.data();
    n.gain = has_gain ? gain.data() : nullptr;
    n.bias = has_bias ? bias.data() : nullptr;
    layer_norm_forward(n, r.y.data());
    layer_norm_backward(n, {dy.data(), r.dx.data(), beta, has_gain ? r.dgain.data() : nullptr,
                            has_bias ? r.dbias.data() : nullptr});
    return r;
  }

  NormCase<double> twin() const {
    return {{.groups = norm.groups,
             .centred = norm.centred,
             .eps = norm.eps,
             .eps_outside = norm.eps_outside,
             .shared_gain = norm.shared_gain,
             .detached = norm.detached},
            rows,
            cols,
            has_gain,
            has_bias,
            beta,
            in_double(x),
            in_double(gain),
            in_double(bias),
            in_double(dy),
            in_double(dx),
            in_double(dgain),
            in_double(dbias)};
  }

  void compare(double tolerance) const {
    const Result a = run();
    const auto b = twin().run();
    CAPTURE(cols);
    CAPTURE(norm.groups);
    CAPTURE(norm.centred);
    CAPTURE(norm.eps_outside);
    CAPTURE(norm.shared_gain);
    CAPTURE(norm.detached);
    CAPTURE(rows);
    CHECK(scaled_error(a.y, b.y) <= tolerance);
    CHECK(scaled_error(a.rstd, b.rstd) <= tolerance);
    CHECK(scaled_error(a.mean, b.mean) <= tolerance);
    // An RMS norm of one number is nearly constant: its derivative is what little is left of a difference.
    CHECK(scaled_error(a.dx, b.dx) <= (cols == 1 ? 5 * tolerance : tolerance));
    CHECK(scaled_error(a.dgain, b.dgain) <= tolerance);
    CHECK(scaled_error(a.dbias, b.dbias) <= tolerance);
  }
};

// The forward and backward of batch norm on the same; y, mean, rstd, dx, dgain, dbias.
template <class Real>
std::vector<std::vector<Real>> batch_norm_run(BatchNorm<Real> norm, const NormCase<Real>& on) {
  const Index groups = on.rows / norm.group_rows;
  std::vector<Real> y = nans<Real>(on.rows * on.cols), mean = nans<Real>(groups * on.cols), rstd = mean,
                    dx = on.dx, dgain = on.dgain, dbias = on.dbias;
  norm.rows = on.rows, norm.cols = on.cols, norm.x = on.x.data();
  norm.mean = mean.data(), norm.rstd = rstd.data();
  norm.gain = on.has_gain ? on.gain.data() : nullptr;
  norm.bias = on.has_bias ? on.bias.data() : nullptr;
  batch_norm_forward(norm, y.data());
  batch_norm_backward(norm, {on.dy.data(), dx.data(), on.beta, dgain.data(), dbias.data()});
  return {y, mean, rstd, dx, dgain, dbias};
}

// The same for norms by a pointwise function; y, dx, dgain, dbias, dalpha, dshift.
template <class Real>
std::vector<std::vector<Real>> pointwise_norm_run(const NormCase<Real>& on, PointwiseFn function) {
  std::vector<Real> y = nans<Real>(on.rows * on.cols), dx = on.dx, dgain = on.dgain, dbias = on.dbias,
                    dalpha = {Real(0.5)}, dshift = {Real(-0.5)};
  const PointwiseNorm<Real> dyt{on.rows,
                                on.cols,
                                Real(0.5),
                                on.x.data(),
                                on.has_gain ? on.gain.data() : nullptr,
                                on.has_bias ? on.bias.data() : nullptr,
                                function,
                                function == PointwiseFn::erf ? Real(0.25) : Real(0)};
  pointwise_norm_forward(dyt, y.data());
  pointwise_norm_backward(
      dyt, {on.dy.data(), dx.data(), on.beta, dgain.data(), dbias.data(), dalpha.data(), dshift.data()});
  return {y, dx, dgain, dbias, dalpha, dshift};
}

template <class Real>
std::vector<Real> joined(std::initializer_list<std::vector<Real>> parts) {
  std::vector<Real> all;
  for (const std::vector<Real>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

TEST_CASE("kernel: norms of rows equal their twin") {
  for (const Index cols : {1, 3, 16, 17, 64, 100, 384}) {
    for (const Index groups : {1, 4}) {
      if (cols % groups != 0) continue;
      for (const bool centred : {true, false}) {
        for (const bool outside : {false, true}) {
          const LayerNorm<float> norm{
              .groups = groups, .centred = centred, .eps = 0.01f, .eps_outside = outside};
          for (const bool affine : {true, false}) {
            NormCase<float>{norm, 5, cols, affine, affine && centred, affine ? 0.0f : 1.0f}.compare(2e-6);
          }
          if (cols <= 64) NormCase<float>{norm, 70, cols, true, true, 1}.compare(2e-6);
          LayerNorm<float> other = norm;
          other.detached = true;
          NormCase<float>{other, 5, cols, true, centred, 1}.compare(2e-6);
          other.shared_gain = true;  // the first cols/groups numbers of the gain
          NormCase<float>{other, 5, cols, true, false, 1}.compare(2e-6);
        }
      }
    }
  }
}

TEST_CASE("kernel: norms of columns and dynamic tanh equal their twins") {
  for (const Index cols : {5, 17, 100}) {
    for (const bool affine : {true, false}) {
      for (const Index rows : {6, 70}) {
        const NormCase<float> on{{}, rows, cols, affine, affine, affine ? 0.0f : 1.0f};
        const auto compare = [&](const auto& got, const auto& want) {
          for (std::size_t i = 0; i < got.size(); ++i) {
            CAPTURE(cols);
            CAPTURE(rows);
            CAPTURE(i);
            CHECK(scaled_error(got[i], want[i]) <= 5e-6);
          }
        };
        for (const bool outside : {false, true}) {
          for (const Index group : {rows, rows / 2}) {
            compare(batch_norm_run<float>({group, 0.01f, outside}, on),
                    batch_norm_run<double>({group, 0.01f, outside}, on.twin()));
          }
        }
        for (const PointwiseFn function : {PointwiseFn::tanh, PointwiseFn::erf})
          compare(pointwise_norm_run(on, function), pointwise_norm_run(on.twin(), function));
      }
    }
  }
}

TEST_CASE("kernel: norms of a row far from zero keep their accuracy") {
  NormCase<float> test{{.eps = 1e-5f}, 3, 100, true, true, 0};
  for (float& x : test.x) x += 1000;  // two passes: no difference of large squares
  test.compare(2e-4);
}

TEST_CASE_TEMPLATE("kernel: a norm of equal numbers is its bias, however small eps is", Real, float, double) {
  for (const Real value : {Real(0), Real(3), Real(3.3), Real(-0.7), Real(1e6 / 3)}) {
    for (const bool outside : {false, true}) {
      NormCase<Real> row{{.eps = Real(1e-12), .eps_outside = outside}, 2, 192, true, true, 0};
      NormCase<Real> column{{}, 192, 1, false, false, 0};
      std::fill(row.x.begin(), row.x.end(), value);
      std::fill(column.x.begin(), column.x.end(), value);
      const auto result = row.run();
      for (std::size_t i = 0; i < result.y.size(); ++i) CHECK(result.y[i] == row.bias[i % row.bias.size()]);
      CHECK(all_finite(result.dx));
      CHECK(batch_norm_run<Real>({192, Real(1e-12), outside}, column)[0] == std::vector<Real>(192));
    }
  }
}

// The mean of x is rounded to a float: so far from zero, x̂ is off by a thousandth. Yet what a norm sends back
// sums to nothing, as it does exactly.
TEST_CASE_TEMPLATE("kernel: the gradient of a norm's input sums to 0 also where rows lie far from zero", Real,
                   float, double) {
  const Index n = 100;
  NormCase<Real> row{{.eps = Real(1e-12)}, 1, n, false, false, 0}, column{{}, n, 1, false, false, 0};
  for (Real& x : row.x) x = Real(1000) + x / 100;
  column.x = row.x;
  for (const std::vector<Real>& dx : {row.run().dx, batch_norm_run<Real>({n, Real(1e-12)}, column)[3]}) {
    double sum = 0, size = 0;
    for (const Real d : dx) sum += d, size += std::abs(d);
    CHECK(std::abs(sum) <= pick<Real>(2e-6, 1e-14) * size);
  }
}

TEST_CASE_TEMPLATE("kernel: a NaN or an infinity spoils its own row of a norm and no other", Real, float,
                   double) {
  for (const double bad : {std::nan(""), infinity, -infinity}) {
    for (const Index column : {0, 15, 16}) {
      NormCase<Real> test{{.eps = Real(1e-5)}, 3, 17, true, true, Real(0)};
      test.x[static_cast<std::size_t>(17 + column)] = static_cast<Real>(bad);
      const auto result = test.run();
      for (std::size_t i = 0; i < result.y.size(); ++i) {
        CHECK(std::isnan(result.y[i]) == (i / 17 == 1));
        CHECK(std::isnan(result.dx[i]) == (i / 17 == 1));
      }
    }
  }
}

namespace {

// Cross-entropy forward and backward: loss, maximum and sum of each row, gradient added to `d`.
template <class Real>
std::vector<std::vector<Real>> cross_entropy_run(const std::vector<Real>& logits,
                                                 const std::vector<std::int32_t>& targets, Real scale,
                                                 Real beta, std::vector<Real> d) {
  const Index rows = std::ssize(targets);
  std::vector<Real> loss = nans<Real>(rows);
  SoftmaxRows<Real> softmax(rows);
  const CrossEntropy<Real> ce{rows, std::ssize(logits) / rows, logits.data(), targets.data(),
                              softmax.stats()};
  cross_entropy_forward(ce, loss.data());
  cross_entropy_backward(ce, scale, d.data(), beta);
  return {loss, softmax.max, softmax.sum, d};
}

}  // namespace

TEST_CASE("kernel: cross-entropy equals its twin") {
  constexpr double tolerance = 5e-7;
  for (const Index classes : {1, 3, 16, 17, 65, 384}) {
    for (const Index rows : {1, 5, 70}) {
      for (const float beta : {0.0f, 1.0f}) {
        const std::vector<float> logits = normals<float>(rows * classes, "logits", 3);
        const std::vector<float> old =
            beta == 0 ? nans<float>(rows * classes) : normals<float>(rows * classes, "old");
        const std::vector<std::int32_t> targets = integers(rows, classes, "targets");
        const auto a = cross_entropy_run(logits, targets, 0.3f, beta, old);
        const auto b = cross_entropy_run<double>(in_double(logits), targets, 0.3f, beta, in_double(old));
        CAPTURE(classes);
        CAPTURE(rows);
        // Absolute, with what subtraction leaves of numbers as large as the logits.
        CHECK(largest_difference(a[0], b[0]) <= 10 * tolerance);
        CHECK(largest_difference(a[1], b[1]) == 0);
        CHECK(scaled_error(a[2], b[2]) <= tolerance);
        CHECK(largest_difference(a[3], b[3]) <= tolerance);
      }
    }
  }
}

TEST_CASE_TEMPLATE("kernel: adding a constant to all logits keeps the digits of the loss and its gradient", Real,
                   float, double) {
  const Index rows = 9, classes = 65;
  const auto run = [&](Real offset) {
    std::vector<Real> logits = normals<Real>(rows * classes, "logits");
    for (Real& x : logits) x = offset + std::round(x * 64) / 64;  // sums are exact
    const auto result =
        cross_entropy_run<Real>(logits, integers(rows, classes, "targets"), 1, 0, nans<Real>(rows * classes));
    return std::vector{result[0], result[3]};
  };
  CHECK(run(0) == run(1000));
}

TEST_CASE_TEMPLATE("kernel: log-sum-exp of extreme logits", Real, float, double) {
  const Index classes = 21;
  for (const Real base : {Real(1e4), Real(-1e4), Real(0)}) {
    std::vector<Real> logits(static_cast<std::size_t>(2 * classes), base);
    logits[classes] = base + Real(2e4);
    const auto result = cross_entropy_run<Real>(logits, {20, 20}, 1, 0, nans<Real>(2 * classes));
    const std::vector<Real>&loss = result[0], &d = result[3];
    const double ulp = pick<Real>(1e-7, 2e-16) * 3e4;
    CHECK(std::abs(loss[0] - std::log(21.0)) <= ulp);
    CHECK(std::abs(loss[1] - 2e4) <= ulp);
    CHECK(all_finite(d));
    CHECK(std::abs(d[classes] - 1) <= ulp);  // all weight on the largest
    CHECK(d.back() == Real(-1));
  }
}

TEST_CASE_TEMPLATE("kernel: a non-finite logit makes its loss NaN", Real, float, double) {
  for (const double bad : {std::nan(""), infinity}) {
    for (const Index at : {0, 7, 16}) {
      std::vector<Real> logits = normals<Real>(2 * 17, "logits");
      logits[at] = static_cast<Real>(bad);
      const auto result = cross_entropy_run<Real>(logits, {3, 3}, 1, 0, nans<Real>(2 * 17));
      CHECK(!std::isfinite(result[0][0]));
      CHECK(std::isfinite(result[0][1]));
      CHECK(std::isnan(result[3][at]));
      CHECK(std::isfinite(result[3][17]));
    }
  }
}

TEST_CASE("kernel: sums and products equal their twins") {
  const Index rows = 37;
  for (const Index cols : {1, 3, 16, 17, 1000}) {
    const Index n = rows * cols;
    const auto run = [&]<class Real>(const std::vector<Real>& a, const std::vector<Real>& b) {
      std::vector<Real> fresh = nans<Real>(n), added = b, sum = fresh, product = b;
      std::vector<Real> columns(b.begin(), b.begin() + cols);
      axpby(n, Real(0.3f), a.data(), Real(0), fresh.data());
      axpby(n, Real(0.3f), a.data(), Real(0.5f), added.data());
      add_scaled(n, Real(0.3f), a.data(), b.data(), sum.data());
      multiply(n, a.data(), product.data(), product.data());
      sum_rows(rows, cols, a.data(), columns.data());
      return std::vector{fresh, added, sum, product, columns};
    };
    const std::vector<float> a = normals<float>(n, "a"), b = normals<float>(n, "b");
    const auto got = run(a, b);
    const auto want = run(in_double(a), in_double(b));
    CAPTURE(cols);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(scaled_error(got[i], want[i]) <= 1e-6);
    double size = 0;
    for (const double x : want[3]) size += std::abs(x);
    CHECK(std::abs(dot(n, a.data(), b.data()) - dot(n, in_double(a).data(), in_double(b).data())) <=
          1e-6 * size);
  }
}

TEST_CASE("kernel: the error of a sum does not grow with the number of rows") {
  const Index rows = 100000;
  std::vector<float> x = normals<float>(rows, "x", 1, 1), sum(1);
  double want = 0;
  for (const float v : x) want += v;
  sum_rows(rows, Index{1}, x.data(), sum.data());
  CHECK(std::abs(sum[0] / want - 1) <= 2e-6);
}

TEST_CASE("kernel: statistics equal their twin and count what is not finite") {
  for (const Index n : {1, 3, 16, 17, 1000, 40000}) {
    std::vector<float> x = normals<float>(n, "x", 2, 0.5);
    const TensorStats a = tensor_stats(n, x.data()), b = tensor_stats(n, in_double(x).data());
    CHECK(std::abs(a.sum - b.sum) <= 1e-6 * std::sqrt(b.sum_squares * static_cast<double>(n)));
    CHECK(std::abs(a.sum_squares - b.sum_squares) <= 1e-6 * b.sum_squares);
    CHECK(a.abs_max == b.abs_max);
    CHECK(a.nonfinite == 0);
    CHECK(a.count == n);

    Index bad = 0;
    for (std::size_t i = 0; i < x.size(); i += 3, ++bad) {
      const double values[] = {std::nan(""), infinity, -infinity};
      x[i] = static_cast<float>(values[i % 9 / 3]);
    }
    const TensorStats c = tensor_stats(n, x.data()), d = tensor_stats(n, in_double(x).data());
    CAPTURE(n);
    CHECK(c.nonfinite == bad);
    CHECK(d.nonfinite == bad);
    CHECK(c.abs_max == d.abs_max);  // infinite from the second on
  }
  std::vector<float> x = normals<float>(50000, "x");
  x[49999] = std::nanf("");
  const double largest = tensor_stats<float>(49999, x.data()).abs_max;
  CHECK(tensor_stats<float>(50000, x.data()).abs_max == largest);  // a NaN does not hide the largest number
  CHECK(tensor_stats(50000, in_double(x).data()).abs_max == largest);
  CHECK(tensor_stats<float>(0, nullptr).count == 0);
}

TEST_CASE("kernel: sums of squares beyond the range of a float") {
  const Index n = 20000;
  for (const double size : {1e-44, 1e-30, 1e-23, 1e-13, 1e18, 1e25, 1e37}) {
    const std::vector<float> x = normals<float>(n, "x", size);
    const TensorStats want = tensor_stats(n, in_double(x).data()), got = tensor_stats(n, x.data());
    CAPTURE(size);
    CHECK(std::abs(sum_squares(n, x.data()) / want.sum_squares - 1) <= 1e-6);
    CHECK(std::abs(got.sum_squares / want.sum_squares - 1) <= 1e-6);
    CHECK(std::abs(got.sum - want.sum) <= 1e-6 * std::sqrt(want.sum_squares * static_cast<double>(n)));
    CHECK(got.abs_max == want.abs_max);
    CHECK(got.nonfinite == 0);

    // An update by so much: lr 1, and no momentum.
    std::vector<float> w(x.size()), v(x.size());
    const WeightChange change =
        kernels<float>().update(n, Sgd<float>{-1, 0, 1, 1}, x.data(), w.data(), v.data(), v.data());
    CHECK(change.before == 0);
    CHECK(std::abs(change.change / want.sum_squares - 1) <= 1e-6);
  }
  const std::vector<float> zeros(n);
  CHECK(sum_squares(n, zeros.data()) == 0);
  CHECK(tensor_stats(n, zeros.data()).sum_squares == 0);
}

TEST_CASE("kernel: optimisers equal their twins") {
  for (const Index n : {1, 17, 1000, 20000}) {
    const std::vector<float> g = normals<float>(n, "g");
    std::vector<float> w = normals<float>(n, "w"), m = normals<float>(n, "m"), v = normals<float>(n, "v");
    for (float& x : v) x = x * x;
    std::vector<double> w2 = in_double(w), m2 = in_double(m), v2 = in_double(v);
    const auto same = [&](const WeightChange& a, const WeightChange& b) {
      CHECK(scaled_error(w, w2) <= 1e-6);
      CHECK(scaled_error(m, m2) <= 1e-6);
      CHECK(scaled_error(v, v2) <= 1e-6);
      CHECK(std::abs(a.before - b.before) <= 1e-5 * b.before);
      CHECK(std::abs(a.change - b.change) <= 1e-4 * b.change);
    };
    const auto update_both = [&](const UpdateRule<float>& fast, const UpdateRule<double>& naive) {
      const WeightChange change = kernels<float>().update(n, fast, g.data(), w.data(), m.data(), v.data());
      same(change,
           kernels<double>().update(n, naive, in_double(g).data(), w2.data(), m2.data(), v2.data()));
    };
    update_both(AdamW<float>{0.7f, 0.9f, 0.99f, 0.1f, 0.01f, 1e-8f, 0.999f, 0.01f, 2},
                AdamW<double>{0.7f, 0.9f, 0.99f, 0.1f, 0.01f, 1e-8f, 0.999f, 0.01f, 2});
    update_both(Sgd<float>{0.7f, 0.9f, 0.999f, 0.01f}, Sgd<double>{0.7f, 0.9f, 0.999f, 0.01f});
    update_both(PlainSgd<float>{0.999f, 0.01f}, PlainSgd<double>{0.999f, 0.01f});
  }
}

TEST_CASE_TEMPLATE("kernel: same bits at any thread count", Real, float, double) {
  const Index n = 70001;
  const std::vector<Real> a = normals<Real>(n, "a"), b = normals<Real>(n, "b");
  CHECK(same_bits_at_any_thread_count([&] {
    const NormCase<Real> on{{.groups = 4, .eps = Real(1e-5)}, 130, 64, true, true, Real(1)};
    const auto r = on.run();
    const auto columns = batch_norm_run<Real>({65, Real(1e-5)}, on),
               derf = pointwise_norm_run(on, PointwiseFn::erf);
    return joined({r.y, r.mean, r.rstd, r.dx, r.dgain, r.dbias, columns[0], columns[3], columns[4], derf[0],
                   derf[1], derf[2], derf[4], derf[5]});
  }));
  CHECK(same_bits_at_any_thread_count([&] {
    const auto r = cross_entropy_run<Real>({a.begin(), a.begin() + 70000}, integers(1000, 70, "targets"), 1,
                                           0, std::vector<Real>(70000));
    return joined({r[0], r[1], r[2], r[3]});
  }));
  CHECK(same_bits_at_any_thread_count([&] {
    std::vector<Real> scaled = b, sum(a.size()), columns(700), product(a.size());
    axpby(n, Real(0.3), a.data(), Real(1), scaled.data());
    add_scaled(n, Real(0.3), a.data(), b.data(), sum.data());
    sum_rows<Real>(100, 700, a.data(), columns.data());
    multiply(n, a.data(), b.data(), product.data());
    return joined({scaled, sum, columns, product});
  }));
  CHECK(same_bits_at_any_thread_count([&] {
    const TensorStats m = tensor_stats(n, a.data());
    return std::vector<double>{dot(n, a.data(), b.data()), m.sum, m.sum_squares, m.abs_max};
  }));
}
