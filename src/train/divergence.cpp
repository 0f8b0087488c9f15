#include "train/divergence.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <type_traits>

#include "core/error.h"
#include "core/text.h"
#include "run/logs.h"

namespace normscope {
namespace {

constexpr std::size_t max_recent_steps = 20;
constexpr double spike_factor = 3;  // times the moving average
constexpr double ema_weight = 0.1;  // of the newest gradient norm
constexpr double min_growth = 2;    // times: less is no growth

// "block 3 ffn_out", "the embedding", "the logits".
std::string place_text(Index layer, const std::string& site, Index blocks) {
  if (layer == 0) return "the embedding";
  if (layer > blocks) return "the " + (site == "final" ? std::string("final activation") : site);
  return text("block ", layer, ' ', site);
}

// The largest ratio of a site's value now and then, and where; sites that were 0 do not count.
struct Growth {
  double times = 0;
  Place place{};
};
Growth largest_growth(const std::vector<SiteRow>& then, const std::vector<SiteRow>& now,
                      double SiteRow::*rms) {
  Growth growth;
  for (std::size_t i = 0; i < then.size() && i < now.size(); ++i) {
    const double times = now[i].*rms / (then[i].*rms);
    if (std::isfinite(times) && times > growth.times) growth = {times, now[i].place};
  }
  return growth;
}

// Appends the numbers of a site. An optional one is two: whether it has a value, and the value.
void add_numbers(const SiteRow& site, std::vector<double>& numbers) {
  const auto add = [&](auto value) {
    if constexpr (std::is_arithmetic_v<decltype(value)>)
      numbers.push_back(static_cast<double>(value));
    else
      numbers.insert(numbers.end(), {value ? 1.0 : 0.0, value.value_or(0)});
  };
  std::apply([&](auto... values) { (add(values), ...); }, numbers_of(site));
}

std::string times_text(double times) {
  if (times >= 1e6) return text(std::scientific, std::setprecision(1), times, " times");
  return text(std::fixed, std::setprecision(times < 10 ? 1 : 0), times, " times");
}

}  // namespace

void RecentSteps::add_norm(double grad_norm) {
  if (!std::isfinite(grad_norm)) return;
  const bool spike = grad_norm_ema_ > 0 && grad_norm > spike_factor * grad_norm_ema_;
  steps_to_record_ = spike ? recorded_after_spike : std::max<Index>(0, steps_to_record_ - 1);
  grad_norm_ema_ =
      grad_norm_ema_ == 0 ? grad_norm : (1 - ema_weight) * grad_norm_ema_ + ema_weight * grad_norm;
}

void RecentSteps::add(Index step, std::vector<SiteRow> sites) {
  if (steps_.size() == max_recent_steps) steps_.pop_front();
  steps_.push_back({step, std::move(sites)});
}

std::vector<double> RecentSteps::to_numbers() const {
  std::vector<double> numbers = {static_cast<double>(steps_to_record_), grad_norm_ema_};
  for (const auto& [step, sites] : steps_) {
    numbers.push_back(static_cast<double>(step));
    for (const SiteRow& site : sites) add_numbers(site, numbers);
  }
  return numbers;
}

void RecentSteps::from_numbers(std::span<const double> numbers, Index n_layer) {
  const std::vector<Place> places = places_of(n_layer);
  std::vector<double> of_a_site;
  add_numbers(SiteRow{}, of_a_site);
  const std::size_t numbers_per_step = 1 + of_a_site.size() * places.size();
  std::size_t steps = numbers.size() / numbers_per_step;
  require(numbers.size() >= 2, "resume", "the checkpoint's ", numbers.size(),
          " numbers of recent steps are too few");
  // Drops the steps of a version that logged other columns; a report then covers fewer steps.
  if (numbers.size() != 2 + steps * numbers_per_step || steps > max_recent_steps) steps = 0;
  const double* next = numbers.data();
  const auto read = [&](auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    const double number = *next++;
    if constexpr (std::is_integral_v<Value>)
      require(number >= 0 && number < 0x1p53, "resume", "the checkpoint counts ", number,
              " in its recent steps");
    if constexpr (std::is_arithmetic_v<Value>) {
      value = static_cast<Value>(number);
    } else if (const double held = *next++; number != 0) {
      value = held;
    }
  };
  read(steps_to_record_);
  steps_to_record_ = std::min(steps_to_record_, recorded_after_spike);
  read(grad_norm_ema_);
  steps_.resize(steps);
  for (Step& step : steps_) {
    read(step.step);
    for (const Place place : places) {
      step.sites.emplace_back().place = place;
      std::apply([&](auto&... values) { (read(values), ...); }, numbers_of(step.sites.back()));
    }
  }
}

FirstNonfinite first_nonfinite(const SiteStatistics& statistics, const GradientNorms& norms,
                               const ParameterLayout& layout, Index step) {
  if (const std::optional<Nonfinite>& first = statistics.first_nonfinite()) {
    return {step, first->place.layer, name_of(first->place.site), "", first->in_gradient};
  }
  for (std::size_t i = 0; i < norms.by_parameter.size(); ++i) {
    if (std::isfinite(norms.by_parameter[i])) continue;
    const Parameter& p = layout.list()[i];
    return {step, p.layer, "", p.name, true};
  }
  return {step, static_cast<int>(layout.blocks.size()) + 1, "loss", "", false};
}

std::string text_of(const FirstNonfinite& first, Index n_layer) {
  return text(first.in_gradient ? "the gradient of " : "",
              first.param.empty() ? place_text(first.layer, first.site, n_layer) : first.param);
}

std::string divergence_report(const FirstNonfinite& first, const std::vector<SiteRow>& failed_step,
                              const RecentSteps& recent) {
  const Index blocks = failed_step.empty() ? 0 : failed_step.back().place.layer - 1;
  std::string report = text("step ", first.step, ": ", text_of(first, blocks), " became non-finite");
  if (recent.steps().empty()) return report;
  const RecentSteps::Step& oldest = recent.steps().front();
  std::vector<std::string> grown;
  const auto add = [&](const char* what, double SiteRow::*rms) {
    const Growth before = largest_growth(oldest.sites, recent.steps().back().sites, rms),
                 failing = largest_growth(oldest.sites, failed_step, rms);  // of the sites still finite
    const Growth& growth = before.times > failing.times ? before : failing;
    if (growth.times >= min_growth)
      grown.push_back(text(what, " had grown ", times_text(growth.times), " since step ", oldest.step,
                           " (most: ", place_text(growth.place.layer, name_of(growth.place.site), blocks),
                           ")"));
  };
  add("activations", &SiteRow::rms);
  add("gradients", &SiteRow::grad_rms);
  return report + "; " + (grown.empty() ? text("nothing had grown since step ", oldest.step) : join(grown));
}

}  // namespace normscope
