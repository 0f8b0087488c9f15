#include "data/vocabulary.h"

#include <iomanip>

#include "core/error.h"
#include "core/text.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

constexpr Token unknown = -1;  // inside token_of_ only
constexpr std::size_t max_named = 8;

// 'é' (U+00E9)
std::string name_of(char32_t character) {
  std::string utf8;
  append_utf8(character, utf8);
  return text('\'', escape_controls(utf8), "' (U+", std::hex, std::uppercase, std::setfill('0'), std::setw(4),
              static_cast<std::uint32_t>(character), ')');
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
  const Json list = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto stop = [&](std::string_view what) {
    fail("vocabulary", where, ": ", what, "; expected a JSON list of ascending code points");
  };
  if (!list.is_array() || list.empty()) stop("is no list of numbers");
  std::u32string characters;
  for (const auto& item : list) {
    const std::uint64_t code = item.is_number_unsigned() ? item.get<std::uint64_t>() : last_code_point + 1;
    if (code > last_code_point || is_surrogate(static_cast<char32_t>(code)))
      stop("holds something that is not a code point");
    if (!characters.empty() && code <= characters.back()) stop("is not ascending");
    characters += static_cast<char32_t>(code);
  }
  return Vocabulary(std::move(characters));
}

std::string Vocabulary::to_json() const {
  return Json(std::vector<std::uint32_t>(characters_.begin(), characters_.end())).dump();
}

std::optional<Token> Vocabulary::find(char32_t character) const {
  if (character >= token_of_.size() || token_of_[character] == unknown) return std::nullopt;
  return token_of_[character];
}

char32_t Vocabulary::character(Token token) const {
  require(token >= 0 && token < size(), "vocabulary", "token ", token, " of ", size());
  return characters_[token];
}

std::vector<Token> Vocabulary::encode(std::u32string_view text, std::string_view where) const {
  std::vector<Token> tokens;
  tokens.reserve(text.size());
  std::u32string missing;
  for (const char32_t c : text) {
    const std::optional<Token> token = find(c);
    if (token) tokens.push_back(*token);
    if (!token && missing.size() <= max_named && missing.find(c) == missing.npos) missing += c;
  }
  if (missing.empty()) return tokens;

  std::vector<std::string> names;
  for (const char32_t c : missing.substr(0, max_named)) names.push_back(name_of(c));
  refuse(where, "the model does not know ", join(names), missing.size() > max_named ? " and others" : "",
         "; its vocabulary is the ", size(), " characters of its training corpus");
}

std::vector<Token> Vocabulary::encode_utf8(std::string_view bytes, std::string_view where) const {
  std::u32string decoded;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Character c = decode_utf8(bytes.substr(at));
    if (!c.valid) refuse(where, "invalid UTF-8 at byte ", at);
    decoded += c.code;
    at += c.size;
  }
  return encode(decoded, where);
}

std::string Vocabulary::decode(std::span<const Token> tokens) const {
  std::string utf8;
  for (const Token token : tokens) append_utf8(character(token), utf8);
  return utf8;
}

}  // namespace normscope
