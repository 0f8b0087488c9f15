#include "data/ngram.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"

namespace normscope {
namespace {

constexpr double smoothing = 0.1;
constexpr std::size_t max_n = 4;

}  // namespace

std::array<NgramLoss, 5> ngram_baselines(std::span<const Token> train, std::span<const Token> text,
                                         Index vocabulary) {
  require(text.size() >= 2 && vocabulary >= 1, "n-gram", text.size(), " characters; expected at least 2");
  std::array<NgramLoss, 5> losses = {{{"uniform", std::log(static_cast<double>(vocabulary))},
                                      {"unigram", 0},
                                      {"bigram", 0},
                                      {"trigram", 0},
                                      {"4-gram", 0}}};
  struct Count {
    double seen = 0, followed = 0;  // followed: by another token
  };
  std::unordered_map<std::u32string_view, Count> counts;  // strings of up to max_n tokens
  const std::u32string known(train.begin(), train.end()), judged(text.begin(), text.end());
  const std::u32string_view all = known;
  counts[all.substr(0, 0)].followed = static_cast<double>(all.size());
  for (std::size_t begin = 0; begin < all.size(); ++begin) {
    for (std::size_t n = 1; n <= std::min(max_n, all.size() - begin); ++n) {
      Count& count = counts[all.substr(begin, n)];
      ++count.seen;
      if (begin + n < all.size()) ++count.followed;
    }
  }
  const auto count_of = [&](std::u32string_view string) {
    const auto found = counts.find(string);
    return found == counts.end() ? Count{} : found->second;
  };
  for (std::size_t n = 1; n <= max_n; ++n) {
    for (std::size_t i = 1; i < judged.size(); ++i) {
      const std::size_t length = std::min(n, i + 1);
      const std::u32string_view string = std::u32string_view(judged).substr(i + 1 - length, length);
      const double followed = count_of(string.substr(0, length - 1)).followed;
      losses[n].nats += std::log((followed + smoothing * static_cast<double>(vocabulary)) /
                                 (count_of(string).seen + smoothing));
    }
    losses[n].nats /= static_cast<double>(text.size() - 1);
  }
  return losses;
}

}  // namespace normscope
