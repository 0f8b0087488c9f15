#include "check/check.h"

#include <algorithm>

namespace normscope {

Outcome scales(const CheckInput&);                                                                  // identities.cpp
Outcome causality(const CheckInput&), derivatives(const CheckInput&), precision(const CheckInput&);  // laws.cpp
Outcome equations(const CheckInput&), first_weights(const CheckInput&);                             // equations.cpp

std::span<const Check> checks() {
  static constexpr Check table[] = {{"scales", scales},           {"causality", causality},
                                    {"derivatives", derivatives}, {"precision", precision},
                                    {"equations", equations},     {"first weights", first_weights}};
  return table;
}

Outcome unless_nan(const CheckInput& given, const Outcome& outcome) {
  const ModelConfig& model = given.config.model;
  const bool squares = model.activation == Activation::relu2 || model.activation == Activation::swiglu;
  const bool overflows = model.norm == NormKind::none && squares;
  const auto is_nan = [](const Result& r) { return std::isnan(r.error); };
  if ((model.norm_eps > 0 && !overflows) || std::ranges::none_of(outcome.results, is_nan)) return outcome;
  return {.does_not_apply = overflows ? "without norms, products of relu2 or swiglu leave the range of double"
                                      : "with norm_eps 0, a norm here divides 0 by 0"};
}

WindowBatch small_batch(const CheckInput& given, Index max_context, Index characters) {
  const std::vector<Token>& text = given.corpus.train;
  const Index context = std::min(given.config.model.context, max_context);
  return {text, evaluation_windows(std::ssize(text), context, std::max<Index>(2, characters / context))};
}

}  // namespace normscope
