// Causality: changing character t changes no logit before t, to the bit.
#include <algorithm>

#include "check/test_model.h"

namespace normscope {
namespace {

// Counts the rows of logits that differ although no character at or before them was changed.
template <class Logits>
Result leak(const char* what, const TestBatch& batch, Index vocab, const std::string& why, Logits logits_of) {
  const Index context = batch.view().context, rows = std::ssize(batch.tokens);
  std::vector<Token> tokens = batch.tokens;
  const auto before = logits_of(Pass{tokens, batch.targets, context});
  Index leaks = 0, of = 0;
  double largest = 0;
  // Near the start, in the middle, at the end: on both sides of block boundaries.
  for (Index changed = std::min<Index>(1, context - 1); changed < context;
       changed += std::max<Index>(1, (context - 1) / 4)) {
    tokens[changed] = static_cast<Token>((tokens[changed] + 1) % vocab);
    const auto after = logits_of(Pass{tokens, batch.targets, context});
    tokens[changed] = batch.tokens[changed];
    for (Index row = 0; row < rows; ++row) {
      if (row >= changed && row < context) continue;  // of this sequence, at or after the change
      bool same = true;
      for (Index i = row * vocab; i < (row + 1) * vocab; ++i) {
        const double a = before[i], b = after[i];
        same = same && (a == b || (std::isnan(a) && std::isnan(b)));
        largest = std::max(largest, std::abs(a - b));
      }
      ++of;
      leaks += !same;
    }
  }
  const char* law = "changing character t changes no logit before t, nor of another sequence";
  return {text(law, what, " (to the bit)"), static_cast<double>(leaks), 0,
          text(leaks, " of ", of, " rows of logits changed, by up to ", largest, why)};
}

}  // namespace

Outcome causality(const Context& given) {
  const Index vocab = given.corpus.vocab.size();
  const NormRow& norm = norm_row(given.config.model.norm);
  const TestBatch batch = small_batch(given, 2e10);
  TestModel<float> model(given, given.config.model);  // the engine that trains: its SIMD, its attention
  const char* mixing =
      !norm.non_causal() ? ""
      : norm.has_running
          ? "'s training statistics mix all tokens of the batch: later characters and other "
            "sequences leak into every position"
          : "'s statistics run over the whole sequence: later characters leak into every position";
  const std::string why = norm.non_causal() ? text(": ", norm.name, mixing) : "";
  std::vector<Result> all{leak(norm.has_running ? " in training" : "", batch, vocab, why, [&](const Pass& b) {
    std::vector<float> logits;
    model.pass(b, &logits);
    return logits;
  })};
  if (!norm.has_running) return all;
  all.push_back(leak(" in evaluation, by running statistics", batch, vocab, "", [&](const Pass& b) {
    std::vector<float> logits;
    for (std::size_t first = 0; first < b.tokens.size(); first += b.context) {
      const std::span<const float> rows = model.forward(b.tokens.subspan(first, b.context));
      logits.insert(logits.end(), rows.begin(), rows.end());
    }
    return logits;
  }));
  return all;
}

}  // namespace normscope
