#include "data/ngram.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/machine.h"

namespace normscope {
namespace {

constexpr double smoothing = 0.1;
constexpr Index max_n = 4;
constexpr Token end_of_text = -1;

// The token `offset` places behind a position of a text.
Token token_at(std::span<const Token> text, Index position, Index offset) {
  return position + offset < std::ssize(text) ? text[position + offset] : end_of_text;
}

// The positions of a text in the order of the max_n tokens that begin there: those of an n-gram are
// neighbours, so it is counted by two searches. A radix sort, from the last of the tokens to the first.
// Nothing if stopped.
std::optional<std::vector<Index>> sorted_positions(std::span<const Token> text, Index vocabulary,
                                                   const std::function<bool()>& is_stopped) {
  std::vector<Index> positions(text.size()), sorted(text.size());
  std::iota(positions.begin(), positions.end(), Index{0});
  for (Index offset = max_n - 1; offset >= 0; --offset) {
    if (is_stopped()) return std::nullopt;
    std::vector<Index> next(vocabulary +
                            2);  // where the next position with each token, end_of_text first, goes
    const auto bucket = [&](Index position) { return token_at(text, position, offset) + 1; };
    for (const Index position : positions) ++next[bucket(position) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (const Index position : positions) sorted[next[bucket(position)]++] = position;
    positions.swap(sorted);
  }
  return positions;
}

}  // namespace

std::optional<NgramLosses> ngram_baselines(std::span<const Token> train, std::span<const Token> text,
                                           Index vocabulary, const std::function<bool()>& is_stopped) {
  require(text.size() >= 2 && vocabulary >= 1, "n-gram", text.size(), " characters; expected at least 2");
  const double needed = 2.0 * sizeof(Index) * static_cast<double>(train.size());
  require(needed <= available_memory_bytes(), "n-gram", "counts of ", train.size(), " characters take ",
          std::llround(needed / 0x1p20), " MiB of memory, which are not free");
  const auto positions = sorted_positions(train, vocabulary, is_stopped);
  NgramLosses losses = unknown_ngrams;
  for (NgramLoss& loss : losses) loss.nats = 0;
  losses[0].nats = std::log(static_cast<double>(vocabulary));
  constexpr Index characters_at_once = 100'000;
  for (Index begin = 0; begin < std::ssize(text); ++begin) {
    if (!positions || (begin % characters_at_once == 0 && is_stopped())) return std::nullopt;
    std::span<const Index> found = *positions;  // of the n-gram so far
    for (Index n = 1; n <= std::min(max_n, std::ssize(text) - begin); ++n) {
      const Index last = begin + n - 1;
      // An n-gram at the end of the training text, the first of those found, is followed by no token.
      const bool is_at_end = !found.empty() && token_at(train, found[0], n - 1) == end_of_text;
      const auto followed = static_cast<double>(std::ssize(found) - is_at_end);
      const auto range = std::ranges::equal_range(
          found, text[last], {}, [&](Index position) { return token_at(train, position, n - 1); });
      found = {range.begin(), range.end()};
      if (last == 0) continue;
      const double loss = std::log((followed + smoothing * static_cast<double>(vocabulary)) /
                                   (static_cast<double>(found.size()) + smoothing));
      const Index longest = begin == 0 ? max_n : n;  // at the begin of the text, longer contexts have no more
      for (Index order = n; order <= longest; ++order) losses[order].nats += loss;
    }
  }
  for (Index n = 1; n <= max_n; ++n) losses[n].nats /= static_cast<double>(text.size() - 1);
  return losses;
}

}  // namespace normscope
