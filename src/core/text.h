// Text helpers: lists of words, and the known word that a mistyped one was most likely meant to be.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace normscope {

// The elements of a vector or set of strings, with `separator` between them.
template <class Words>
std::string join(const Words& words, std::string_view separator = ", ") {
  std::string all;
  std::string_view before;
  for (const std::string& word : words) {
    all.append(before).append(word);
    before = separator;
  }
  return all;
}

// The parts of `list` between separators: "a,,b" is {"a", "", "b"}, and an empty text has one empty part.
inline std::vector<std::string> split(std::string_view list, char separator = ',') {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = std::min(list.find(separator), list.size());
    parts.emplace_back(list.substr(0, end));
    if (end == list.size()) return parts;
    list.remove_prefix(end + 1);
  }
}

// The part after the last dot: the name of a key without its section.
inline std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal string alignment).
// Ignores case and takes '-' for '_'.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    const auto plain = [](char c) {
      return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    return plain(x) == plain(y);
  };
  // Three rows of the table: of a's first i-2, i-1 and i characters.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// The candidate nearest to `word`, the first of equals; empty where none is near enough to have been meant.
template <class Candidates>
std::string nearest(std::string_view word, const Candidates& candidates) {
  constexpr std::size_t max_length = 100;  // no name is that long, and the cost is the product of the lengths
  if (word.size() > max_length) return {};
  std::string best;
  std::size_t limit = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    // There are no fewer edits than the lengths differ by.
    if (candidate.size() >= word.size() + limit || word.size() >= candidate.size() + limit) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < limit) std::tie(limit, best) = std::pair(distance, std::string(candidate));
  }
  return best;
}

// nearest(), or else the first candidate that begins with `word` or that `word` begins with: --temp for
// --temperature, --output for --out.
template <class Candidates>
std::string nearest_or_begun(std::string_view word, const Candidates& candidates) {
  constexpr std::size_t min_common = 3;
  std::string best = nearest(word, candidates);
  for (const std::string_view candidate : candidates) {
    const std::size_t common = std::min(word.size(), candidate.size());
    const bool begun = common >= min_common && word.substr(0, common) == candidate.substr(0, common);
    if (best.empty() && begun) best = candidate;
  }
  return best;
}

}  // namespace normscope
