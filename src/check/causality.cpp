// Causality: changing character t changes no logit before t, to the bit.
#include <algorithm>

#include "check/test_model.h"

namespace normscope {
namespace {

// The logits of a training pass, or sequence by sequence those of evaluation.
std::vector<float> logits_of(TestModel<float>& model, const Pass& batch, bool training) {
  std::vector<float> logits;
  if (training) {
    model.pass(batch, &logits);
    return logits;
  }
  for (std::size_t first = 0; first < batch.tokens.size(); first += batch.context) {
    const std::span<const float> rows = model.forward(batch.tokens.subspan(first, batch.context));
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

// Counts the rows of logits that differ although no character at or before them was changed.
Result leak(TestModel<float>& model, const TestBatch& batch, bool training, const char* what,
            const std::string& why) {
  const Index context = batch.context, rows = std::ssize(batch.tokens);
  const Index vocab = model.transformer.vocab_size();
  std::vector<Token> tokens = batch.tokens;
  const Pass pass{tokens, batch.targets, context};
  const std::vector<float> before = logits_of(model, pass, training);
  Index leaks = 0, of = 0;
  double largest = 0;
  // Near the start, in the middle, at the end: on both sides of block boundaries.
  for (Index changed = std::min<Index>(1, context - 1); changed < context;
       changed += std::max<Index>(1, (context - 1) / 4)) {
    tokens[changed] = static_cast<Token>((tokens[changed] + 1) % vocab);
    const std::vector<float> after = logits_of(model, pass, training);
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
  const NormRow& norm = norm_row(given.config.model.norm);
  const TestBatch batch = small_batch(given, 2e10);
  TestModel<float> model(given, given.config.model);  // the engine that trains: its SIMD, its attention
  if (!norm.has_running) {
    const char* why = "'s statistics run over the whole sequence: later characters leak into every position";
    return leak(model, batch, true, "", norm.non_causal() ? text(": ", norm.name, why) : "");
  }
  const std::string why = text(": ", norm.name, "'s training statistics mix all tokens of the batch: ",
                               "later characters and other sequences leak into every position");
  return std::vector{leak(model, batch, true, " in training", why),
                     leak(model, batch, false, " in evaluation, by running statistics", "")};
}

}  // namespace normscope
