#include "train/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "core/portable_math.h"

namespace normscope {

Sampler::Sampler(Model<float>& model, std::span<const Token> prompt, const SampleOptions& options)
    : model_(model), options_(options), stream_(options.seed, "sample"), cache_(model.config()) {
  const auto used = std::min(std::ssize(prompt), model.config().context);
  history_.assign(prompt.end() - used, prompt.end());
  feed(history_);
}

void Sampler::feed(std::span<const Token> tokens) {
  // Instance norm has statistics over the whole window, so a new character changes all positions before it.
  const bool whole_window = norm_row(model_.config().norm).over == NormOver::sequence;
  const std::span<const float> all =
      whole_window ? model_.forward(history_) : model_.forward(tokens, &cache_);
  if (whole_window) cache_.length = std::ssize(history_);
  logits_.assign(all.end() - model_.transformer.vocab_size(), all.end());
}

Token Sampler::next() {
  const Token token = draw();
  const Index context = model_.config().context;
  history_.push_back(token);
  if (cache_.length < context) {
    feed({&history_.back(), 1});
    return token;
  }
  history_.erase(history_.begin(), history_.end() - std::max<Index>(1, context / 2));
  cache_.length = 0;
  feed(history_);
  return token;
}

Token Sampler::draw() {
  if (!std::isfinite(std::accumulate(logits_.begin(), logits_.end(), 0.0)))
    fail("sample", "the model's logits are not finite, so nothing can be drawn; its training has diverged");
  const auto best = std::max_element(logits_.begin(), logits_.end());
  if (options_.temperature == 0) return static_cast<Token>(best - logits_.begin());

  ranked_.clear();
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    const double score =
        (static_cast<double>(logits_[i]) - static_cast<double>(*best)) / options_.temperature;
    ranked_.emplace_back(portable::exp(score), static_cast<Token>(i));
  }
  if (options_.top_k > 0 || options_.top_p < 1)
    std::ranges::stable_sort(ranked_, std::greater(), &std::pair<double, Token>::first);
  if (options_.top_k > 0) ranked_.resize(std::min<std::size_t>(options_.top_k, ranked_.size()));
  double total = 0;
  for (const auto& [weight, token] : ranked_) total += weight;
  if (options_.top_p < 1) {
    double reached = 0;
    std::size_t count = 0;
    do {
      reached += ranked_[count++].first;
    } while (count < ranked_.size() && reached < options_.top_p * total);
    ranked_.resize(count);
    total = reached;
  }
  double left = stream_.uniform(drawn_++) * total;
  for (const auto& [weight, token] : ranked_) {
    left -= weight;
    if (left < 0) return token;
  }
  return ranked_.back().second;
}

Token default_prompt(const Vocabulary& vocab) { return vocab.find(U'\n').value_or(0); }

}  // namespace normscope
