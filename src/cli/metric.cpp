#include "cli/metric.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cli/terminal.h"
#include "core/error.h"

namespace normscope {
namespace {

constexpr double absurd_loss = 100;           // from here digits after the point say nothing
constexpr double coarse_spread = 0.01;        // from here a mean's fourth digit says nothing
constexpr double normal_quantile = 1.959964;  // Student's of infinitely many degrees
constexpr std::ptrdiff_t few_seeds = 5;       // up to here one seed of the other sign is a large share

// P(-t < T < t): the finite series of Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even), all terms positive.
double central_probability(double t, Index degrees) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(degrees)));
  const double cosine = std::cos(angle);
  const bool odd = degrees % 2 == 1;
  double term = odd ? cosine : 1, sum = 0;
  for (Index k = odd ? 3 : 2; k <= degrees; k += 2) {
    sum += term;
    term *= cosine * cosine * static_cast<double>(k - 1) / static_cast<double>(k);
  }
  return odd ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
}

}  // namespace

double Metric::mean() const {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

std::optional<double> Metric::stddev() const {
  if (values.size() < 2) return std::nullopt;
  const double middle = mean();
  double squares = 0;
  for (const double v : values) squares += (v - middle) * (v - middle);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double Metric::standard_error() const {
  return stddev().value_or(0) / std::sqrt(static_cast<double>(values.size()));
}

std::string metric_text(const Metric& metric, Digits digits) {
  if (metric.values.empty()) return "-";
  const double mean = metric.mean();
  if (digits == Digits::speed) return short_number(mean);
  const std::optional<double> spread = metric.stddev();
  const auto number = [&](double v) {
    if (digits == Digits::ratio || std::abs(mean) >= absurd_loss) return significant_text(v);
    return fixed(v, spread.value_or(0) >= coarse_spread ? 3 : 4);
  };
  if (!spread || !std::isfinite(*spread)) return number(mean);
  return number(mean) + " ± " + (digits == Digits::ratio ? significant_text(*spread, 2) : number(*spread));
}

// Losses of runs on their way to diverge differ by thousands.
std::string difference_text(const Metric& differences) {
  const double mean = differences.mean(), error = differences.standard_error();
  const bool fits = error >= 5e-4 || (error < 1e-9 && std::abs(mean) >= 5e-4);  // four digits show something
  const bool plain = fits && std::abs(mean) < 100;
  const auto number = [&](double v) { return plain ? fixed(v, 4) : significant_text(v); };
  return text(mean > 0 ? "+" : "", number(mean), " ± ", number(error));
}

std::string verdict_on(const Metric& differences) {
  const auto& all = differences.values;
  const std::ptrdiff_t seeds = std::ssize(all), same = std::count(all.begin(), all.end(), 0.0),
                       lower = std::count_if(all.begin(), all.end(), [](double d) { return d < 0; });
  if (seeds < 2) return seeds == 0 ? "no seed in common" : "one seed in common";
  if (same == seeds) return "the same losses";
  const double errors = std::abs(differences.mean()) / differences.standard_error();
  if (!(errors >= normal_quantile)) return "cannot be told apart";
  if (lower > 0 && lower + same < seeds && seeds <= few_seeds)
    return "cannot be told apart: the sign changes from seed to seed";
  if (seeds == 2) return "too few seeds to tell from chance";
  return errors >= t_quantile(seeds - 1) ? "a clear difference"
                                         : "perhaps a difference; too few seeds to tell";
}

double t_quantile(Index degrees) {
  double low = normal_quantile, high = 13;  // of one degree it is 12.7
  for (int halving = 0; halving < 50; ++halving) {
    const double middle = (low + high) / 2;
    (central_probability(middle, degrees) < 0.95 ? low : high) = middle;
  }
  return high;
}

}  // namespace normscope
