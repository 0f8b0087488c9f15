// The two ends of the model: what enters the first block; logits, the loss, and the gradient that enters the
// stream.
#pragma once

#include <vector>

#include "data/corpus.h"
#include "theory/norms.h"

namespace normscope {

// What a text is to the theory.
struct TextStatistics {
  Index vocabulary = 0;
  // R_d = P(c_i = c_{i+d}), d = 0..T: how often two characters at this distance are the same.
  std::vector<double> collisions;
  double unrelated = 0;  // the same of characters of two sequences

  // Of the character read at token n and the one read `ahead` positions after token m.
  double same(Index n, Index m, Index ahead = 0) const {
    const Index T = std::ssize(collisions) - 1;
    return n / T == m / T ? collisions[std::abs(m + ahead - n)] : unrelated;
  }
};

// Counted from the training part, for T characters of context.
TextStatistics text_statistics(const Corpus& corpus, Index context);

// Embeddings of tokens, and of positions where they are learned, have this variance a feature. Kernels are of
// one sequence or of two.
Signal embedded(const ModelConfig& config, double variance, const TextStatistics& text, Index sequences);

struct HeadPrediction {
  double loss;                     // nats
  double logits;                   // mean square
  double logits_gradient;          // mean square, of the mean loss over `tokens`
  Kernel gradient;                 // of what the head reads
  std::vector<double> projection;  // (T) E (dx.x)^2 / C^2 of it: what a norm that made x takes out of dx
  std::vector<double> along;       // (T) what widths add to its diagonal, all of it along x
};

// `variance`: of an entry of the head. `tied`: it is the embedding, so that the logit of the character just
// read lies C variance x.share higher than the others.
HeadPrediction predict_head(const Signal& x, Index width, double variance, bool tied, double tokens,
                            const TextStatistics& text);

}  // namespace normscope
