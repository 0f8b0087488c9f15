#include "data/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "core/error.h"
#include "io/utf8.h"

namespace normscope {
namespace {

constexpr Token unknown = -1;  // inside token_of_ only
constexpr std::size_t most_named = 8;

// 'é' (U+00E9)
std::string name_of(char32_t character) {
  std::string utf8;
  append_utf8(character, utf8);
  char number[16];
  std::snprintf(number, sizeof number, "U+%04X", static_cast<unsigned>(character));
  return text('\'', escape_controls(utf8), "' (", number, ')');
}

}  // namespace

Vocabulary::Vocabulary(std::u32string characters) : characters_(std::move(characters)) {
  token_of_.assign(characters_.empty() ? 0 : characters_.back() + 1, unknown);
  for (std::size_t i = 0; i < characters_.size(); ++i) token_of_[characters_[i]] = static_cast<Token>(i);
}

Vocabulary Vocabulary::of(std::span<const std::u32string_view> texts) {
  std::vector<bool> seen(last_code_point + 1);
  for (const std::u32string_view text : texts) {
    for (const char32_t c : text) seen[c] = true;
  }
  std::u32string characters;
  for (char32_t c = 0; c <= last_code_point; ++c) {
    if (seen[c]) characters += c;
  }
  return Vocabulary(std::move(characters));
}

Vocabulary Vocabulary::from_json(std::string_view json, std::string_view where) {
  const auto stop = [&](std::string_view what) {
    fail("vocabulary", where, ": ", what, "; expected a JSON list of ascending code points");
  };
  const auto skip_spaces = [&] {
    json.remove_prefix(std::min(json.find_first_not_of(" \t\r\n"), json.size()));
  };
  const auto take = [&](char wanted) {
    skip_spaces();
    const bool there = json.starts_with(wanted);
    if (there) json.remove_prefix(1);
    skip_spaces();
    return there;
  };
  std::u32string characters;
  if (!take('[')) stop("does not begin with [");
  do {
    std::uint32_t code = 0;
    const auto [end, error] = std::from_chars(json.data(), json.data() + json.size(), code);
    if (error != std::errc()) stop("holds something that is not a code point");
    if (code > last_code_point || is_surrogate(code))
      stop(text("holds ", code, ", which is not a code point"));
    if (!characters.empty() && code <= characters.back()) stop("is not ascending");
    characters += code;
    json.remove_prefix(static_cast<std::size_t>(end - json.data()));
  } while (take(','));
  if (!take(']') || !json.empty()) stop("does not end with ]");
  return Vocabulary(std::move(characters));
}

std::string Vocabulary::to_json() const {
  std::string json = "[";
  for (const char32_t c : characters_) {
    if (json.size() > 1) json += ',';
    json += std::to_string(static_cast<std::uint32_t>(c));
  }
  return json + "]";
}

std::optional<Token> Vocabulary::find(char32_t character) const {
  if (character >= token_of_.size() || token_of_[character] == unknown) return std::nullopt;
  return token_of_[character];
}

char32_t Vocabulary::character(Token token) const {
  require(token >= 0 && token < size(), "vocabulary", "token ", token, " of ", size());
  return characters_[static_cast<std::size_t>(token)];
}

std::vector<Token> Vocabulary::encode(std::u32string_view text, std::string_view where) const {
  std::vector<Token> tokens;
  tokens.reserve(text.size());
  std::u32string missing;
  for (const char32_t c : text) {
    const std::optional<Token> token = find(c);
    if (token) tokens.push_back(*token);
    if (!token && missing.size() <= most_named && missing.find(c) == missing.npos) missing += c;
  }
  if (missing.empty()) return tokens;

  std::string names;
  for (const char32_t c : missing.substr(0, most_named)) names += (names.empty() ? "" : ", ") + name_of(c);
  refuse(where, "the model does not know ", names, missing.size() > most_named ? " and others" : "",
         "; its vocabulary are the ", size(), " characters of its training corpus");
}

std::vector<Token> Vocabulary::encode_utf8(std::string_view bytes, std::string_view where) const {
  std::u32string decoded;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Character c = decode_utf8(bytes.substr(at));
    if (!c.valid) refuse(where, "invalid UTF-8 at byte ", at);
    decoded += c.code;
    at += static_cast<std::size_t>(c.size);
  }
  return encode(decoded, where);
}

std::string Vocabulary::decode(std::span<const Token> tokens) const {
  std::string utf8;
  for (const Token token : tokens) append_utf8(character(token), utf8);
  return utf8;
}

}  // namespace normscope
