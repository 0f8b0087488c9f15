#include "train/divergence.h"

#include <algorithm>
#include <cmath>
#include <iomanip>

#include "core/error.h"

namespace normscope {
namespace {

constexpr std::size_t steps_kept = 20;
constexpr double far_above = 3;  // times the usual gradient
constexpr double smoothing = 0.1;
constexpr double worth_telling = 2;  // times: less is no growth

// "block 3 ffn_out", "the embedding", "the logits".
std::string place_text(int layer, const std::string& site, Index blocks) {
  if (layer == 0) return "the embedding";
  if (layer > blocks) return "the " + (site == "final" ? std::string("final activation") : site);
  return text("block ", layer, ' ', site);
}

// How many times larger a site is now than it was, at most; sites that were 0 are left out.
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

std::string times_text(double times) {
  std::ostringstream out;
  if (times < 1e6) {
    out << std::fixed << std::setprecision(times < 10 ? 1 : 0) << times;
  } else {
    out << std::setprecision(1) << std::scientific << times;
  }
  return out.str() + " times";
}

}  // namespace

void RecentSteps::add_norm(double grad_norm) {
  if (!std::isfinite(grad_norm)) return;
  const bool surge = usual_ > 0 && grad_norm > far_above * usual_;
  watch_ = surge ? watched_steps : std::max(0, watch_ - 1);
  usual_ = usual_ == 0 ? grad_norm : (1 - smoothing) * usual_ + smoothing * grad_norm;
}

void RecentSteps::add(Index step, std::vector<SiteRow> sites) {
  if (steps_.size() == steps_kept) steps_.pop_front();
  steps_.push_back({step, std::move(sites)});
}

std::vector<double> RecentSteps::to_numbers() const {
  std::vector<double> numbers = {static_cast<double>(watch_), usual_};
  for (const auto& [step, sites] : steps_) {
    numbers.push_back(static_cast<double>(step));
    for (const SiteRow& r : sites) {
      numbers.insert(numbers.end(), {r.mean, r.rms, r.abs_max, static_cast<double>(r.nonfinite), r.grad_rms,
                                     r.grad_abs_max, r.grad_norm, static_cast<double>(r.grad_nonfinite)});
    }
  }
  return numbers;
}

void RecentSteps::from_numbers(std::span<const double> numbers, Index n_layer) {
  const std::vector<Place> places = places_of(n_layer);
  const std::size_t numbers_per_step = 1 + 8 * places.size();
  const auto count = [](double number) {
    require(number >= 0 && number < 0x1p53, "resume", "the checkpoint counts ", number,
            " in its recent steps");
    return static_cast<Index>(number);
  };
  require(numbers.size() >= 2 && (numbers.size() - 2) % numbers_per_step == 0 &&
              numbers.size() / numbers_per_step <= steps_kept,
          "resume", "the checkpoint's ", numbers.size(), " numbers of recent steps are no whole steps");
  watch_ = static_cast<int>(std::min<Index>(count(numbers[0]), watched_steps));
  usual_ = numbers[1];
  steps_.clear();
  for (const double* n = numbers.data() + 2; n < numbers.data() + numbers.size();) {
    steps_.push_back({count(*n++), {}});
    for (const Place place : places) {
      steps_.back().sites.push_back({place, n[0], n[1], n[2], count(n[3]), n[4], n[5], n[6], count(n[7])});
      n += 8;
    }
  }
}

FirstNonfinite first_nonfinite(const SiteStatistics<float>& statistics, const GradientNorms& norms,
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

std::string divergence_story(const FirstNonfinite& first, const std::vector<SiteRow>& broken,
                             const RecentSteps& recent) {
  const Index blocks = broken.empty() ? 0 : broken.back().place.layer - 1;
  std::string story = text("step ", first.step, ": ", text_of(first, blocks), " became non-finite");
  if (recent.steps().empty()) return story;
  // What is still finite of the broken step counts too.
  const RecentSteps::Step& then = recent.steps().front();
  const std::vector<SiteRow>& last = recent.steps().back().sites;
  const auto both = [&](double SiteRow::*rms) {
    const Growth before = largest_growth(then.sites, last, rms),
                 in_it = largest_growth(then.sites, broken, rms);
    return before.times > in_it.times ? before : in_it;
  };
  const Growth activations = both(&SiteRow::rms), gradients = both(&SiteRow::grad_rms);
  const auto grown = [&](const char* what, const Growth& growth) {
    return text(what, " had grown ", times_text(growth.times), " since step ", then.step,
                " (most: ", place_text(growth.place.layer, name_of(growth.place.site), blocks), ")");
  };
  const bool up = activations.times >= worth_telling, gradients_up = gradients.times >= worth_telling;
  if (up) story += "; " + grown("activations", activations);
  if (gradients_up) story += (up ? ", " : "; ") + grown("gradients", gradients);
  if (!up && !gradients_up) story += text("; nothing had grown since step ", then.step);
  return story;
}

}  // namespace normscope
