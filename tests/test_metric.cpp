// Means, spreads and what a mean difference is worth.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "cli/metric.h"
#include "core/random.h"

using namespace normscope;

TEST_CASE("Student's t: 5% lie beyond the quantiles of scipy.stats.t.ppf(0.975, n)") {
  const struct {
    Index degrees;
    double quantile;
  } known[] = {{1, 12.706204736174694},   {2, 4.302652729749462},    {3, 3.1824463052837078},
               {4, 2.7764451051977934},   {5, 2.5705818356363146},   {9, 2.262157162798205},
               {10, 2.228138851986274},   {19, 2.0930240544083087},  {20, 2.085963447265864},
               {29, 2.045229642132703},   {59, 2.000995378088267},   {99, 1.9842169515864174},
               {199, 1.9719565442517533}, {999, 1.9623414611334493}, {1000, 1.9623390808264083}};
  for (const auto& [degrees, quantile] : known) {
    CAPTURE(degrees);
    CHECK(two_sided_p(quantile, degrees) == doctest::Approx(0.05).epsilon(1e-11));
  }
}

TEST_CASE("mean, deviation and error of a metric") {
  const Metric metric{{2.5, 2.9, 2.2, 2.6}};
  CHECK(metric.mean() == doctest::Approx(2.55).epsilon(1e-12));
  CHECK(metric.stddev() == doctest::Approx(std::sqrt(0.25 / 3)).epsilon(1e-12));
  CHECK(metric.standard_error() == doctest::Approx(std::sqrt(0.25 / 12)).epsilon(1e-12));
  CHECK(std::isnan(Metric{}.mean()));
  CHECK(std::isnan(Metric{}.stddev()));
  CHECK(std::isnan(Metric{{1.0}}.stddev()));
  CHECK(metric_text({}, Digits::loss) == "-");
  CHECK(metric_text({{2.51234}}, Digits::loss) == "2.5123");
  CHECK(metric_text({{2.5, 2.6}}, Digits::loss) == "2.550 ± 0.071");
  CHECK(metric_text({{7.0123e-17}}, Digits::ratio) == "7.01e-17");  // and not 0.0000
  CHECK(metric_text({{1009349.8}}, Digits::loss) == "1.01e+06");
  CHECK(metric_text({{1e6, 2e6}}, Digits::loss) == "1.5e+06 ± 7.1e+05");
  CHECK(metric_text({{2.0, 2.0}}, Digits::ratio) == "2 ± 0");
  CHECK(metric_text({{52100, 52300}}, Digits::speed) == "52.2k");
  CHECK(with_error(-0.01442, 0.00291) == "-0.0144 ± 0.0029");
}

TEST_CASE("what can be said of differences") {
  const auto repeated = [](std::vector<double> values, int times) {
    std::vector<double> all;
    for (int i = 0; i < times; ++i) all.insert(all.end(), values.begin(), values.end());
    return Metric{all};
  };
  CHECK(verdict_on({{0.0, 0.0, 0.0}}) == "the same losses");
  CHECK(verdict_on({{0.30, 0.31}}) == "too few seeds to tell from chance");
  CHECK(verdict_on({{0.3, -0.2}}) == "cannot be told apart");
  CHECK(verdict_on({{-0.30, -0.31, -0.32}}) == "a clear difference");
  CHECK(verdict_on({{0.3, 0.05, 0.2}}) == "perhaps a difference; too few seeds to tell");  // t 2.5, needs 4.3
  CHECK(verdict_on({{0.2, 0.2, 0.2, 0.2, -0.02}}) == "a clear difference");  // t 3.5, needs 2.8
  CHECK(verdict_on({{0.2, 0.21, 0.19, 0.2, 0.2, 0.2, 0.2, -0.02}}) == "a clear difference");
  // Pairs 1 - e, 1 + e have mean 1 and standard error e/sqrt(n-1), so t = sqrt(n-1)/e.
  const auto of_t = [&](int n, double t) {
    const double e = std::sqrt(n - 1) / t;
    return verdict_on(repeated({1 - e, 1 + e}, n / 2));
  };
  CHECK(of_t(100, 1.99) == "a clear difference");  // p 0.0493
  CHECK(of_t(60, 2.07) == "a clear difference");   // p 0.0428
  CHECK(of_t(60, 1.99) == "perhaps a difference; too few seeds to tell");
  CHECK(of_t(100, 1.95) == "cannot be told apart");
  CHECK(of_t(1000, 1.963) == "a clear difference");
}

TEST_CASE("chance alone is called a clear difference one time in twenty, whatever the seeds") {
  const RandomStream stream(1, "chance");
  std::uint64_t draw = 0;
  for (const int seeds : {6, 30, 100}) {
    constexpr int trials = 4000;
    int clear = 0;
    for (int trial = 0; trial < trials; ++trial) {
      Metric differences;
      for (int i = 0; i < seeds; ++i) differences.values.push_back(stream.normal(draw++));
      clear += verdict_on(differences) == "a clear difference";
    }
    CAPTURE(seeds);
    CHECK(std::abs(clear / static_cast<double>(trials) - 0.05) < 0.011);  // 3 standard errors
  }
}
