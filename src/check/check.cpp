#include "check/check.h"

#include <algorithm>
#include <cmath>

#include "check/test_model.h"

namespace normscope {
namespace {

// Whether numbers grow so large that products may be infinite even in double: SwiGLU squares the stream,
// which no norm need bound.
bool leaves_range(const Context& given) {
  TestModel<double> model(given, given.config.model);
  const auto is_huge = [](double x) { return std::isfinite(x) && std::abs(x) > 1e100; };
  return std::ranges::any_of(tensors_of(model, small_batch(given).view()),
                             [&](const Tensor& t) { return std::ranges::any_of(t.data, is_huge); });
}

}  // namespace

std::span<const Check> checks() {
  static constexpr bool without_eps = true, two_characters = true;
  static constexpr Check table[] = {
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

Outcome run_check(const Check& check, const Context& given) {
  if (check.two_characters && given.corpus.vocab.size() < 2) return "the vocabulary has one character";
  Outcome outcome = check.measure(given);
  if (!outcome.does_not_apply.empty()) return outcome;
  std::vector<Result>& all = outcome.results;
  std::erase_if(all, [](const Result& r) { return std::isinf(r.limit); });
  if (all.empty()) return "all that it is about is lost in rounding";
  const auto is_nan = [](const Result& r) { return std::isnan(r.error) || std::isnan(r.limit); };
  if (std::ranges::none_of(all, is_nan)) return outcome;
  if (check.without_eps || given.config.model.norm_eps == 0)
    return "with norm_eps 0, a norm here divides 0 by 0";
  if (leaves_range(given)) return "numbers here grow beyond 1e100";
  return outcome;
}

}  // namespace normscope
