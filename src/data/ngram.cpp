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

// Up to max_n tokens, as a key of its own: a text need not be kept in another form to be counted.
struct Ngram {
  Ngram() { tokens.fill(-1); }
  explicit Ngram(std::span<const Token> few) : Ngram() { std::ranges::copy(few, tokens.begin()); }
  bool operator==(const Ngram&) const = default;
  std::array<Token, max_n> tokens;
};

struct NgramHash {
  std::size_t operator()(const Ngram& ngram) const {
    const auto* bytes = reinterpret_cast<const char*>(ngram.tokens.data());
    return std::hash<std::string_view>()({bytes, sizeof ngram.tokens});
  }
};

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
  std::unordered_map<Ngram, Count, NgramHash> counts;
  counts[Ngram()].followed = static_cast<double>(train.size());
  for (std::size_t begin = 0; begin < train.size(); ++begin) {
    for (std::size_t n = 1; n <= std::min(max_n, train.size() - begin); ++n) {
      Count& count = counts[Ngram(train.subspan(begin, n))];
      ++count.seen;
      if (begin + n < train.size()) ++count.followed;
    }
  }
  const auto count_of = [&](std::span<const Token> tokens) {
    const auto found = counts.find(Ngram(tokens));
    return found == counts.end() ? Count{} : found->second;
  };
  for (std::size_t n = 1; n <= max_n; ++n) {
    for (std::size_t i = 1; i < text.size(); ++i) {
      const std::size_t length = std::min(n, i + 1);
      const std::span<const Token> ngram = text.subspan(i + 1 - length, length);
      const double followed = count_of(ngram.first(length - 1)).followed;
      losses[n].nats += std::log((followed + smoothing * static_cast<double>(vocabulary)) /
                                 (count_of(ngram).seen + smoothing));
    }
    losses[n].nats /= static_cast<double>(text.size() - 1);
  }
  return losses;
}

}  // namespace normscope
