// N-gram baselines: the losses that a trained model must beat.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "core/types.h"
#include "data/corpus.h"

namespace normscope {

struct NgramLoss {
  const char* name;
  double nats = std::numeric_limits<double>::quiet_NaN();  // mean over the characters predicted
};
using NgramLosses = std::array<NgramLoss, 5>;
constexpr NgramLosses unknown_ngrams = {{{"uniform"}, {"unigram"}, {"bigram"}, {"trigram"}, {"4-gram"}}};

// uniform, unigram, bigram, trigram, 4-gram: p(c | context) = (count(context c) + 0.1) / (count(context) +
// 0.1 V), where the context is the n-1 characters before c, or all where there are fewer. Counts are of
// `train`; the losses are means over every character of `text` but the first, like the model's. Takes 16
// bytes for each character of `train`, whatever its n-grams. Nothing if `is_stopped`, which is called several
// times a second, returns true. Error: the memory is not free.
std::optional<NgramLosses> ngram_baselines(
    std::span<const Token> train, std::span<const Token> text, Index vocabulary,
    const std::function<bool()>& is_stopped = [] { return false; });

}  // namespace normscope
