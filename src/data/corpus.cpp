#include "data/corpus.h"

#include <cmath>
#include <iomanip>
#include <limits>

#include "core/error.h"
#include "core/machine.h"
#include "core/text.h"
#include "io/file.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

constexpr Token unknown = -1;
constexpr double memory_per_byte = 9;  // of a text: itself, its code points, their tokens
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

}  // namespace

// --- vocabulary ---

Vocabulary::Vocabulary(std::u32string characters) : characters_(std::move(characters)) {
  token_of_.assign(characters_.empty() ? 0 : characters_.back() + 1, unknown);
  for (std::size_t i = 0; i < characters_.size(); ++i) token_of_[characters_[i]] = static_cast<Token>(i);
}

Vocabulary Vocabulary::of(std::u32string_view text) {
  std::vector<bool> seen(last_code_point + 1);
  for (const char32_t c : text) seen[c] = true;
  std::u32string characters;
  for (char32_t c = 0; c <= last_code_point; ++c) {
    if (seen[c]) characters += c;
  }
  return Vocabulary(std::move(characters));
}

Vocabulary Vocabulary::from_json(std::string_view json, std::string_view name) {
  const Json list = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  std::u32string characters;
  bool is_sound = list.is_array() && !list.empty();
  for (const Json& item : is_sound ? list : Json::array()) {
    const std::uint64_t code = item.is_number_unsigned() ? item.get<std::uint64_t>() : last_code_point + 1;
    is_sound = is_sound && is_code_point(code) && (characters.empty() || code > characters.back());
    characters += static_cast<char32_t>(code);
  }
  require(is_sound, "vocabulary", name, ": got ", quote(list),
          "; expected a JSON list of ascending code points");
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

std::vector<Token> Vocabulary::encode(std::u32string_view text, std::string_view topic) const {
  std::vector<Token> tokens;
  tokens.reserve(text.size());
  for (const char32_t c : text) {
    const std::optional<Token> token = find(c);
    if (!token)
      refuse(topic, "'", escape_controls(to_utf8(c)), "' (U+", std::hex, std::uppercase, std::setfill('0'),
             std::setw(4), static_cast<std::uint32_t>(c), std::dec, ") is not in the model's vocabulary, the ",
             size(), " characters of its training corpus; leave it out");
    tokens.push_back(*token);
  }
  return tokens;
}

std::string Vocabulary::decode(std::span<const Token> tokens) const {
  std::string utf8;
  for (const Token token : tokens) utf8 += to_utf8(character(token));
  return utf8;
}

// --- text ---

std::u32string decode_text(std::string_view bytes, std::string_view topic, std::string_view name) {
  std::u32string characters;
  characters.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const auto character = decode_utf8(bytes.substr(at));
    if (!character)
      refuse(topic, name, ": invalid UTF-8 at byte ", at, "; convert it with iconv -f ENCODING -t UTF-8");
    characters += character->code;
    at += character->size;
  }
  return characters;
}

std::u32string read_text(const std::string& path, std::uint64_t* hash) {
  const std::string bytes =
      read_file(path, "corpus", static_cast<Index>(available_memory_bytes() / memory_per_byte));
  if (hash) *hash = fnv1a(bytes, *hash);
  std::u32string characters = decode_text(bytes, "corpus", path);
  if (bytes.starts_with(byte_order_mark)) characters.erase(0, 1);
  if (characters.empty()) refuse("corpus", path, ": is empty; expected text");
  return characters;
}

// --- corpus ---

Index training_characters(Index characters, double val_fraction) {
  // Rounding loses up to N*epsilon, and so a character where the exact product is whole. The products of
  // other fractions in practice are never that close below a whole number.
  const double n = static_cast<double>(characters);
  return static_cast<Index>(
      std::floor((1.0 - val_fraction) * n + 2.0 * std::numeric_limits<double>::epsilon() * n));
}

Corpus load_corpus(const std::vector<std::string>& paths, double val_fraction, const std::string& val_path,
                   Index context) {
  if (paths.empty()) refuse("corpus", "no file; data.path names one or more");
  const std::string names = join(paths, " + ");
  std::uint64_t hash = fnv1a_basis;
  std::u32string all;
  for (const std::string& path : paths) all += read_text(path, &hash);
  const Index characters = std::ssize(all);
  Index split = training_characters(characters, val_fraction);
  if (!val_path.empty()) {
    split = characters;
    hash = fnv1a("\xFF", hash);  // no byte of UTF-8: a text cut elsewhere is another one
    all += read_text(val_path, &hash);
  }
  const std::u32string_view train = std::u32string_view(all).substr(0, split);
  const std::u32string_view val = std::u32string_view(all).substr(split);

  if (split < context + 1)
    refuse("corpus", names, ": the training part has ", split, " of ", characters,
           " characters; model.context = ", context, " needs at least ", context + 1,
           "; use a longer text, a smaller model.context or a smaller data.val_fraction");
  if (val.size() < 2 && (val_fraction > 0 || !val_path.empty()))
    refuse("corpus", val_path.empty() ? names : val_path, ": the validation part has ", val.size(),
           " of the 2 characters that it needs; use a longer text, or ",
           val_path.empty() ? "data.val_fraction 0 for no validation" : "leave data.val_path out");
  const Vocabulary vocab = Vocabulary::of(all);
  return {vocab.encode(train, "corpus"), vocab.encode(val, "corpus"), vocab, hash};
}

}  // namespace normscope
