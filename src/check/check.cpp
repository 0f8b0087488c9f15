#include "check/check.h"

#include <algorithm>
#include <cmath>

#include "check/test_model.h"

namespace normscope {
std::span<const Check> checks() {
  static constexpr bool without_eps = true, two_characters = true;
  static constexpr Check table[] = {
      {1, "norm gradient", norm_gradient, without_eps},
      {2, "branch scale", branch_scale, without_eps, two_characters},
      {3, "query scale", query_scale, without_eps, two_characters},
      {4, "stream scale", stream_scale, without_eps, two_characters},
      {5, "causality", causality, false, two_characters, Check::bits},
      {6, "uniform loss", uniform_loss, false, false, Check::values},
      {7, "differences", finite_differences, false, two_characters},
      {8, "precision", precision},
      {9, "equations", equations, false, false, Check::values},
      {10, "first values", first_values, false, false, Check::bits},
  };
  return table;
}

Outcome run_check(const Check& check, const Context& given) {
  if (check.two_characters && given.corpus.vocab.size() < 2) return "the vocabulary has one character";
  Outcome outcome = check.measure(given);
  if (!outcome.does_not_apply.empty()) return outcome;
  std::vector<Result>& all = outcome.results;
  std::erase_if(all, [](const Result& r) { return std::isinf(r.limit); });
  if (all.empty()) return "chaotic, no two differences of the loss agree";
  if (check.of == Check::bits || std::ranges::all_of(all, &Result::holds)) return outcome;
  const auto is_nan = [](const Result& r) { return std::isnan(r.error) || std::isnan(r.limit); };
  const bool without_eps = check.without_eps || given.config.model.norm_eps == 0;
  if (std::ranges::any_of(all, is_nan) && without_eps) return "with norm_eps 0, a norm here divides 0 by 0";
  TestModel<double> model(given, given.config.model);
  const auto last = check.of == Check::values ? Tensor::value : Tensor::vector_gradient;
  const std::string chaotic = chaotic_tensor(model, small_batch(given).view(), 1e-12, 1e-6, last);
  return chaotic.empty() ? outcome : Outcome("chaotic, " + chaotic);
}

}  // namespace normscope
