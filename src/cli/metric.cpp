#include "cli/metric.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "cli/terminal.h"

namespace normscope {
namespace {

constexpr double absurd_loss = 100;           // above it, digits after the point mean nothing
constexpr double normal_quantile = 1.959964;  // Student's t at 5%, infinite degrees of freedom

}  // namespace

double Metric::mean() const {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Metric::stddev() const {
  if (values.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  double squares = 0;
  for (const double v : values) squares += (v - mean()) * (v - mean());
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double Metric::standard_error() const { return stddev() / std::sqrt(static_cast<double>(values.size())); }

std::string metric_text(const Metric& metric, Digits digits) {
  if (metric.values.empty()) return "-";
  const double mean = metric.mean(), stddev = metric.stddev();
  if (digits == Digits::speed) return short_number(mean);
  if (std::isfinite(stddev)) return with_error(mean, stddev);
  return digits == Digits::loss && std::abs(mean) < absurd_loss ? fixed(mean, 4) : significant_text(mean);
}

std::string with_error(double mean, double error) {
  const double digits = 1 - std::floor(std::log10(error));
  if (!(digits >= 0 && digits <= 6)) return significant_text(mean) + " ± " + significant_text(error, 2);
  return fixed(mean, static_cast<int>(digits)) + " ± " + fixed(error, static_cast<int>(digits));
}

std::string verdict_on(const Metric& differences) {
  const auto& all = differences.values;
  if (std::ranges::count(all, 0.0) == std::ssize(all)) return "the same losses";
  const double t = std::abs(differences.mean()) / differences.standard_error();
  if (!(t >= normal_quantile)) return "cannot be told apart";
  if (all.size() == 2) return "too few seeds to tell from chance";
  return two_sided_p(t, std::ssize(all) - 1) <= 0.05 ? "a clear difference"
                                                     : "perhaps a difference; too few seeds to tell";
}

// 1 - P(-t < T < t) by the finite series of Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even), whose terms
// are all positive.
double two_sided_p(double t, Index degrees) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(degrees))), cosine = std::cos(angle);
  const bool odd = degrees % 2 == 1;
  double term = odd ? cosine : 1, sum = 0;
  for (Index k = odd ? 3 : 2; k <= degrees; k += 2) {
    sum += term;
    term *= cosine * cosine * static_cast<double>(k - 1) / static_cast<double>(k);
  }
  return 1 - (odd ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum);
}

}  // namespace normscope
