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

std::string divergence_story(const FirstNonfinite& first, const std::vector<SiteRow>& broken,
                             const RecentSteps& recent) {
  const Index blocks = broken.empty() ? 0 : broken.back().place.layer - 1;
  std::string story = text("step ", first.step, ": ", first.in_gradient ? "the gradient of " : "",
                           first.param.empty() ? place_text(first.layer, first.site, blocks) : first.param,
                           " became non-finite");
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
