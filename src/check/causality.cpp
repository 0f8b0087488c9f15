// No character may be seen before its turn: changing character t changes no logit before t, to the bit.
#include <algorithm>
#include <cstring>

#include "check/trial.h"
#include "config/names.h"

namespace normscope {
namespace {

// Rows of logits that differ although no character at or before them was changed, and by how much at most.
struct Leak {
  Index rows = 0, of = 0;
  double largest = 0;
};

template <class Logits>
Leak leak(const TrialBatch& batch, Index vocab, Logits logits_of) {
  const Index context = batch.view().context, rows = static_cast<Index>(batch.tokens.size());
  std::vector<Token> tokens = batch.tokens;
  const auto before = logits_of(TokenBatch{tokens, batch.targets, context});
  Leak found;
  // Near the start, in the middle, at the end: whatever is cut in blocks meets a change on either side of a
  // cut.
  for (Index changed = std::min<Index>(1, context - 1); changed < context;
       changed += std::max<Index>(1, (context - 1) / 4)) {
    Token& token = tokens[static_cast<std::size_t>(changed)];
    const Token kept = token;
    token = static_cast<Token>((token + 1) % vocab);
    const auto after = logits_of(TokenBatch{tokens, batch.targets, context});
    token = kept;
    for (Index row = 0; row < rows; ++row) {
      if (row >= changed && row < context) continue;  // of this sequence, at or after the change
      ++found.of;
      bool same = true;
      for (Index i = row * vocab; i < (row + 1) * vocab; ++i) {
        const double a = before[static_cast<std::size_t>(i)], b = after[static_cast<std::size_t>(i)];
        same = same && a == b;
        found.largest = std::max(found.largest, std::abs(a - b));
      }
      found.rows += !same;
    }
  }
  return found;
}

void report(const Subject& subject, const char* what, const Leak& leak, const std::string& why) {
  const std::string note = text(leak.rows, " of ", leak.of, " rows of logits changed, by up to ",
                                leak.largest, why.empty() ? "" : ": ", why);
  subject.report(
      {text("changing character t changes no logit before t, nor of another sequence", what, " (to the bit)"),
       static_cast<double>(leak.rows), 0, leak.rows > 0 ? note : ""});
}

}  // namespace

void prove_causality(const Subject& subject) {
  const Index vocab = subject.corpus.vocab.size();
  if (vocab < 2) return subject.does_not_apply("the vocabulary has one character");
  const ModelConfig config = without_dropout(subject.config.model);
  const NormRow& norm = norm_row(config.norm);
  const TrialBatch batch = affordable_batch(subject);

  // The engine that trains, in float: its blocks, its SIMD, its attention.
  Model<float> model(config, vocab, gemm_provider(subject.config.train));
  const auto seed = static_cast<std::uint64_t>(subject.config.train.seed);
  initialise(config, model.layout(), seed, model.parameters);
  move_vectors(model.layout(), seed, model.parameters);

  const std::string why =
      !norm.leaks ? ""
      : norm.has_running
          ? text(norm.name,
                 "'s training statistics mix all tokens of the batch: later characters and other "
                 "sequences leak into every position")
          : text(norm.name,
                 "'s statistics run over the whole sequence: later characters leak into every position");
  report(subject, norm.has_running ? " in training" : "",
         leak(batch, vocab,
              [&](const TokenBatch& b) {
                std::vector<float> logits;
                model.loss_and_gradients(b, 1, {}, nullptr, &logits);
                return logits;
              }),
         why);
  if (!norm.has_running) return;
  report(subject, " in evaluation, by running statistics",
         leak(batch, vocab,
              [&](const TokenBatch& b) {
                std::vector<float> logits;
                for (std::size_t first = 0; first < b.tokens.size();
                     first += static_cast<std::size_t>(b.context)) {
                  const std::span<const float> rows =
                      model.forward(b.tokens.subspan(first, static_cast<std::size_t>(b.context)));
                  logits.insert(logits.end(), rows.begin(), rows.end());
                }
                return logits;
              }),
         "");
}

}  // namespace normscope
