#include "data/corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/machine.h"
#include "core/text.h"
#include "io/file.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

constexpr Token unknown = -1;
constexpr double memory_per_byte = 6;  // of a text: itself, the tokens of its characters, and some room
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

// Calls use(code point) for each character of a text, without a BOM at its start. Usage Error for invalid
// UTF-8.
template <class Use>
void for_each_character(std::string_view text, std::string_view topic, std::string_view name,
                        const Use& use) {
  std::size_t at = text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
  while (at < text.size()) {
    const auto character = decode_utf8(text.substr(at));
    if (!character)
      refuse(topic, name, ": invalid UTF-8 at byte ", at, "; convert it with iconv -f ENCODING -t UTF-8");
    use(character->code);
    at += character->size;
  }
}

// Usage Error for files that together do not fit the free memory. A pipe, whose size is unknown, counts as
// empty.
void require_text_memory(const std::vector<std::string>& files) {
  double bytes = 0;
  for (const std::string& file : files) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(file, error);
    if (!error) bytes += static_cast<double>(size);
  }
  const double needed = memory_per_byte * bytes, available = available_memory_bytes();
  const auto mebibytes = [](double number) { return text(std::llround(number / 0x1p20), " MiB"); };
  if (needed > available)
    refuse("corpus", join(files, " + "), ": a text of ", mebibytes(bytes), " takes up to ", mebibytes(needed),
           " of memory, and ", mebibytes(available), " are free; use a shorter text");
}

}  // namespace

// --- vocabulary ---

Vocabulary::Vocabulary(std::u32string ascending) : characters_(std::move(ascending)) {
  token_of_.assign(characters_.empty() ? 0 : characters_.back() + 1, unknown);
  for (std::size_t i = 0; i < characters_.size(); ++i) token_of_[characters_[i]] = static_cast<Token>(i);
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

std::vector<Token> Vocabulary::encode(std::string_view text, std::string_view topic,
                                      std::string_view name) const {
  std::vector<Token> tokens;
  tokens.reserve(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));  // first bytes
  for_each_character(text, topic, name, [&](char32_t c) {
    const std::optional<Token> token = find(c);
    if (!token)
      refuse(topic, name, ": the model has no '", escape_controls(to_utf8(c)), "' (U+", std::hex,
             std::uppercase, std::setfill('0'), std::setw(4), static_cast<std::uint32_t>(c), std::dec,
             "), only the ", size(), " characters of its texts");
    tokens.push_back(*token);
  });
  return tokens;
}

std::string Vocabulary::decode(std::span<const Token> tokens) const {
  std::string utf8;
  for (const Token token : tokens) {
    require(token >= 0 && token < size(), "vocabulary", "token ", token, " of ", size());
    utf8 += to_utf8(characters_[token]);
  }
  return utf8;
}

std::string Vocabulary::text() const {
  std::string utf8;
  for (const char32_t c : characters_) utf8 += to_utf8(c);
  return utf8;
}

// --- corpus ---

std::string read_text(const std::string& path) {
  require_text_memory({path});
  const std::string bytes =
      read_file(path, "corpus", static_cast<Index>(available_memory_bytes() / memory_per_byte));
  if (bytes.empty() || bytes == byte_order_mark) refuse("corpus", path, ": is empty; expected text");
  return bytes;
}

Index training_characters(Index characters, double val_fraction) {
  // Rounding loses up to N*epsilon, and so a character where the exact product is whole. The products of
  // other fractions in practice are never that close below a whole number.
  const double n = static_cast<double>(characters);
  return static_cast<Index>(
      std::floor((1.0 - val_fraction) * n + 2.0 * std::numeric_limits<double>::epsilon() * n));
}

Corpus load_corpus(const std::vector<std::string>& paths, double val_fraction, const std::string& val_path,
                   Index context, const Vocabulary& known) {
  if (paths.empty()) refuse("corpus", "no file; data.path names one or more");
  std::vector<std::string> files = paths;
  if (!val_path.empty()) files.push_back(val_path);
  require_text_memory(files);
  Corpus corpus;
  corpus.hash = fnv1a_basis;
  std::vector<std::string> texts;
  std::vector<bool> occurs(last_code_point + 1);  // by code point
  Index characters = 0, of_paths = 0;             // in all; in `paths`
  for (const std::string& file : files) {
    const bool is_validation = texts.size() == paths.size();
    if (is_validation)
      corpus.hash = fnv1a("\xFF", corpus.hash);  // no byte of UTF-8: another cut, another hash
    texts.push_back(read_text(file));
    if (texts.size() < paths.size() && !texts.back().ends_with('\n')) texts.back() += '\n';
    corpus.hash = fnv1a(texts.back(), corpus.hash);
    for_each_character(texts.back(), "corpus", file, [&](char32_t c) {
      occurs[c] = true;
      ++characters;
    });
    if (!is_validation) of_paths = characters;
  }
  const Index split = val_path.empty() ? training_characters(characters, val_fraction) : of_paths;
  const Index validation = characters - split;
  const std::string names = join(paths, " + ");
  if (split < context + 1)
    refuse("corpus", names, ": the training part has ", split, " of ", of_paths,
           " characters; model.context = ", context, " needs at least ", context + 1,
           "; use a longer text, a smaller model.context or a smaller data.val_fraction");
  if (validation < 2 && (val_fraction > 0 || !val_path.empty()))
    refuse("corpus", val_path.empty() ? names : val_path, ": the validation part has ", validation,
           " of the 2 characters that it needs; use a longer text, or ",
           val_path.empty() ? "data.val_fraction 0 for no validation" : "leave data.val_path out");

  std::u32string ascending;
  for (char32_t c = 0; c <= last_code_point; ++c) {
    if (occurs[c]) ascending += c;
  }
  const bool has_all = std::ranges::all_of(ascending, [&](char32_t c) { return known.find(c).has_value(); });
  corpus.vocab = has_all ? known : Vocabulary(std::move(ascending));
  corpus.train.reserve(split);
  corpus.val.reserve(validation);
  for (std::string& text : texts) {
    for_each_character(text, "corpus", join(files, " + "), [&](char32_t c) {
      std::vector<Token>& part = std::ssize(corpus.train) < split ? corpus.train : corpus.val;
      part.push_back(*corpus.vocab.find(c));
    });
    text = std::string();  // frees its memory
  }
  return corpus;
}

std::vector<std::string> unseen_characters(const Corpus& corpus) {
  std::vector<bool> is_known(corpus.vocab.size());
  for (const Token token : corpus.train) is_known[token] = true;
  std::vector<std::string> unseen;
  for (const Token token : std::set<Token>(corpus.val.begin(), corpus.val.end())) {
    if (!is_known[token]) unseen.push_back(quote(corpus.vocab.decode({&token, 1})));
  }
  return unseen;
}

}  // namespace normscope
