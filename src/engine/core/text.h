// Text helpers: lists of words, and the known word that a mistyped one was most likely meant to be.
#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace normscope {

// The number that the whole text writes in decimal (integers: to `base`); nullopt for another text, or a
// number out of range. Reals by strtod, as libc++ before version 20 has no from_chars for them.
template <class Number>
std::optional<Number> parse_number(const std::string& digits, int base = 10) {
  const char* end = digits.data() + digits.size();
  Number value{};
  if constexpr (std::is_floating_point_v<Number>) {
    if (digits.empty() || digits.find_first_not_of("0123456789+-.eEinfaINFA") != digits.npos ||
        digits[0] == '+')
      return std::nullopt;
    char* parsed = nullptr;
    errno = 0;
    value = std::strtod(digits.c_str(), &parsed);
    if (parsed != end || errno == ERANGE) return std::nullopt;
  } else {
    const auto [parsed, error] = std::from_chars(digits.data(), end, value, base);
    if (parsed != end || error != std::errc()) return std::nullopt;
  }
  return value;
}

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
inline std::string_view leaf_name(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// Insertions, deletions and substitutions that turn a into b, '-' counting as '_' (Levenshtein).
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto plain = [](char c) { return c == '-' ? '_' : c; };
  // A row of the table: distances of a's first i characters to b's first j.
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (plain(a[i - 1]) != plain(b[j - 1]));
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
    }
  }
  return row[b.size()];
}

// The candidate nearest to `word`, else the first that begins it or that it begins: --temp for --temperature,
// --output for --out. Empty where none is near enough to have been meant.
template <class Candidates>
std::string nearest(std::string_view word, const Candidates& candidates) {
  constexpr std::size_t max_length = 100;  // no name is that long, and the cost is the product of the lengths
  constexpr std::size_t min_begun = 3;
  std::string best;
  if (word.size() > max_length) return best;
  std::size_t limit = std::max<std::size_t>(1, (word.size() + 1) / 3);
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance <= limit && (best.empty() || distance < limit)) {
      limit = distance;
      best = candidate;
    }
  }
  for (const std::string_view candidate : candidates) {
    const bool begun = candidate.starts_with(word) || word.starts_with(candidate);
    if (best.empty() && begun && std::min(word.size(), candidate.size()) >= min_begun) best = candidate;
  }
  return best;
}

}  // namespace normscope
