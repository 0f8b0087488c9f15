// Text from a model, one character at a time, with a key-value cache (none under instancenorm, whose statistics
// are of the whole sequence).
#pragma once

#include <span>
#include <vector>

#include "core/random.h"
#include "data/corpus.h"
#include "model/model.h"

namespace normscope {

struct SampleOptions {
  double temperature = 1.0;  // 0: the most likely character, always
  Index top_k = 0;           // draw among the k most likely; 0: all
  double top_p = 1.0;        // of these, the fewest whose share reaches p (Holtzman et al. 2020)
  Index seed = 1;
};

// Draws character after character. When the cache holds T characters, the last max(1, T/2) are encoded again
// from position 0, so the average cost of a character does not depend on the text's length. Passes with a cache
// may use OpenBLAS (GemmMode::with_cache()), so a text's bits may differ between processors.
class Sampler {
 public:
  // `prompt`: at least one token; the last T are used.
  Sampler(Model<float>& model, std::span<const Token> prompt, const SampleOptions& options);

  Token next();  // Error: the logits are not finite

 private:
  void feed(std::span<const Token> tokens);
  Token draw();

  Model<float>& model_;
  SampleOptions options_;
  RandomStream stream_;
  KeyValueCache<float> cache_;
  std::vector<Token> history_;
  std::vector<float> logits_;  // after the last character
  std::uint64_t drawn_ = 0;
  std::vector<std::pair<double, Token>> ranked_;  // scratch of draw()
};

// The prompt if the user gives none: a newline if the vocabulary has it, else its first character.
Token default_prompt(const Vocabulary& vocab);

}  // namespace normscope
