// What a table of counts achieves: the losses a model must beat to have learnt anything.
#pragma once

#include <array>
#include <span>

#include "core/types.h"
#include "data/vocabulary.h"

namespace normscope {

struct NgramLoss {
  const char* name;
  double nats;  // mean over the characters predicted
};

// uniform, unigram, bigram, trigram, 4-gram: p(c | context) = (count(context c) + 0.1) / (count(context) +
// 0.1 V), the context being the n-1 characters before c. Counts come from `train`; the losses are means over
// every character of `text` but the first, which are those the model predicts. Where fewer than n-1
// characters come before one, these fewer are its context.
std::array<NgramLoss, 5> ngram_baselines(std::span<const Token> train, std::span<const Token> text,
                                         Index vocabulary);

// The unigram's alone, which takes no tree.
double unigram_loss(std::span<const Token> train, std::span<const Token> text, Index vocabulary);

}  // namespace normscope
