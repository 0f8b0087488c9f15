#include "check/check.h"

#include <algorithm>
#include <cmath>

#include "check/trial.h"

namespace normscope {
namespace {

// Whether numbers grow so large that products may be infinite even in double: SwiGLU squares the stream, and
// no norm may bound it.
bool leaves_range(const Subject& subject) {
  Trial<double> model(subject, subject.config.model);
  const std::vector<Tensor> pass = tensors_of(model, affordable_batch(subject).view());
  return std::any_of(pass.begin(), pass.end(), [](const Tensor& t) {
    return std::any_of(t.data.begin(), t.data.end(),
                       [](double x) { return std::isfinite(x) && std::abs(x) > 1e100; });
  });
}

}  // namespace

std::span<const Law> laws() {
  static constexpr bool without_eps = true, two_characters = true;
  static constexpr Law table[] = {
      {1, "norm gradient", norm_gradient, without_eps},
      {2, "branch scale", branch_scale, without_eps, two_characters},
      {3, "query scale", query_scale, without_eps, two_characters},
      {4, "stream scale", stream_scale, without_eps, two_characters},
      {5, "rezero start", rezero_start},
      {6, "equal characters", equal_characters, false, two_characters},
      {7, "equivalences", equivalences},
      {8, "causality", causality, false, two_characters},
      {9, "uniform loss", uniform_loss},
      {10, "differences", finite_differences, false, two_characters},
      {11, "precision", precision},
      {12, "equations", equations},
      {13, "first values", first_values},
  };
  return table;
}

Outcome try_law(const Law& law, const Subject& subject) {
  if (law.two_characters && subject.corpus.vocab.size() < 2) return "the vocabulary has one character";
  Outcome outcome = law.measure(subject);
  if (!outcome.does_not_apply.empty()) return outcome;
  std::vector<Finding>& all = outcome.findings;
  std::erase_if(all, [](const Finding& f) { return std::isinf(f.limit); });
  if (all.empty()) return "all that it is about is lost in rounding";
  const bool defined = std::none_of(
      all.begin(), all.end(), [](const Finding& f) { return std::isnan(f.error) || std::isnan(f.limit); });
  if (defined) return outcome;
  if (law.without_eps || subject.config.model.norm_eps == 0)
    return "with norm_eps 0, a norm here divides 0 by 0";
  if (leaves_range(subject)) return "numbers here grow beyond 1e100";
  return outcome;
}

}  // namespace normscope
