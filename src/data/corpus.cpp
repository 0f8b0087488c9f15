#include "data/corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <new>
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

// The code points that occur in a corpus.
class CodePoints {
 public:
  void add(char32_t code) { occurs_[code] = true; }
  std::u32string ascending() const {
    std::u32string codes;
    for (char32_t c = 0; c <= last_code_point; ++c) {
      if (occurs_[c]) codes += c;
    }
    return codes;
  }

 private:
  std::vector<bool> occurs_ = std::vector<bool>(last_code_point + 1);
};

// A hint for a character that the vocabulary lacks: Unicode writes é as one character or as an e and a
// combining accent.
std::string accents_hint(char32_t code, const Vocabulary& vocabulary) {
  constexpr char32_t first_accent = 0x300, last_accent = 0x36F, first_letter = 0xC0, last_letter = 0x24F;
  if (code >= first_accent && code <= last_accent)
    return "; it is an accent, and the corpus has letters with their accents as single characters (NFC), if "
           "any";
  bool has_accents = false;
  for (char32_t c = first_accent; c <= last_accent; ++c) has_accents = has_accents || vocabulary.find(c);
  return has_accents && code >= first_letter && code <= last_letter
             ? "; the corpus has accents as characters of their own, after the letter (NFD)"
             : "";
}

// Usage Error about texts whose bytes and tokens do not fit `available` bytes, free or allowed, of memory.
[[noreturn]] void refuse_size(const std::vector<std::string>& paths, double bytes,
                              const std::string& available) {
  const auto mebibytes = [](double number) { return text(std::llround(number / 0x1p20), " MiB"); };
  refuse("corpus", join(paths, " + "), ": a text of ", mebibytes(bytes), " takes up to ",
         mebibytes(memory_per_byte * bytes), " of memory", available, "; use a shorter text");
}

// The size of the files together; pipes, whose size is unknown, count as empty.
double bytes_of(const std::vector<std::string>& paths) {
  double bytes = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (!error) bytes += static_cast<double>(size);
  }
  return bytes;
}

void require_text_memory(const std::vector<std::string>& paths) {
  const double bytes = bytes_of(paths), available = available_memory_bytes();
  if (memory_per_byte * bytes > available)
    refuse_size(paths, bytes, text(", and ", std::llround(available / 0x1p20), " MiB are free"));
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

char32_t Vocabulary::character(Token token) const {
  require(token >= 0 && token < size(), "vocabulary", "token ", token, " of ", size());
  return characters_[token];
}

std::vector<Token> Vocabulary::encode(std::string_view text, std::string_view topic,
                                      std::string_view name) const {
  std::vector<Token> tokens;
  tokens.reserve(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));  // first bytes
  for_each_character(text, topic, name, [&](char32_t c) {
    const std::optional<Token> token = find(c);
    if (!token)
      refuse(topic, "'", escape_controls(to_utf8(c)), "' (U+", std::hex, std::uppercase, std::setfill('0'),
             std::setw(4), static_cast<std::uint32_t>(c), std::dec,
             ") is not in the model's vocabulary, the ", size(),
             " characters of its training corpus; leave it out", accents_hint(c, *this));
    tokens.push_back(*token);
  });
  return tokens;
}

std::string Vocabulary::decode(std::span<const Token> tokens) const {
  std::string utf8;
  for (const Token token : tokens) utf8 += to_utf8(character(token));
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

namespace {

// Usage Error for a part that is too short. `characters`: of `paths`; `split`: of these for training.
void require_parts(const std::vector<std::string>& paths, double val_fraction, const std::string& val_path,
                   Index context, Index characters, Index split, Index validation) {
  const std::string names = join(paths, " + ");
  if (split < context + 1)
    refuse("corpus", names, ": the training part has ", split, " of ", characters,
           " characters; model.context = ", context, " needs at least ", context + 1,
           "; use a longer text, a smaller model.context or a smaller data.val_fraction");
  if (validation < 2 && (val_fraction > 0 || !val_path.empty()))
    refuse("corpus", val_path.empty() ? names : val_path, ": the validation part has ", validation,
           " of the 2 characters that it needs; use a longer text, or ",
           val_path.empty() ? "data.val_fraction 0 for no validation" : "leave data.val_path out");
}

}  // namespace

Corpus load_corpus(const std::vector<std::string>& paths, double val_fraction, const std::string& val_path,
                   Index context) {
  if (paths.empty()) refuse("corpus", "no file; data.path names one or more");
  std::vector<std::string> files = paths;
  if (!val_path.empty()) files.push_back(val_path);
  try {
    require_text_memory(files);
    Corpus corpus;
    corpus.hash = fnv1a_basis;
    std::vector<std::string> texts;
    CodePoints codes;
    Index characters = 0, of_paths = 0;  // in all; in `paths`
    for (const std::string& file : files) {
      const bool is_validation = texts.size() == paths.size();
      if (is_validation)
        corpus.hash = fnv1a("\xFF", corpus.hash);  // no byte of UTF-8: a text cut elsewhere differs
      texts.push_back(read_text(file));
      corpus.hash = fnv1a(texts.back(), corpus.hash);
      for_each_character(texts.back(), "corpus", file, [&](char32_t c) {
        codes.add(c);
        ++characters;
      });
      if (!is_validation) of_paths = characters;
    }
    const Index split = val_path.empty() ? training_characters(characters, val_fraction) : of_paths;
    require_parts(paths, val_fraction, val_path, context, of_paths, split, characters - split);

    corpus.vocab = Vocabulary(codes.ascending());
    corpus.train.reserve(split);
    corpus.val.reserve(characters - split);
    for (std::string& text : texts) {
      for_each_character(text, "corpus", join(files, " + "), [&](char32_t c) {
        std::vector<Token>& part = std::ssize(corpus.train) < split ? corpus.train : corpus.val;
        part.push_back(*corpus.vocab.find(c));
      });
      text = std::string();  // frees its memory
    }
    return corpus;
  } catch (const std::bad_alloc&) {
    refuse_size(files, bytes_of(files), ", more than the process is allowed");
  }
}

std::vector<std::string> corpus_remarks(const Corpus& corpus) {
  constexpr Index min_lines = 1000;
  constexpr double sorted_share = 0.95;
  constexpr std::size_t most_named = 8;
  std::vector<std::string> remarks;

  std::vector<bool> is_known(corpus.vocab.size());
  for (const Token token : corpus.train) is_known[token] = true;
  std::vector<std::string> unseen;
  for (const Token token : std::set<Token>(corpus.val.begin(), corpus.val.end())) {
    if (!is_known[token]) unseen.push_back(quote(to_utf8(corpus.vocab.character(token))));
  }
  const std::size_t count = unseen.size();
  unseen.resize(std::min(count, most_named));
  if (count > 0)
    remarks.push_back(
        "the training part lacks characters of the validation part, which no model can learn: " +
        join(unseen) + (count > most_named ? ", ..." : ""));

  const std::optional<Token> newline = corpus.vocab.find('\n');
  Index lines = 0, ascending = 0;
  std::span<const Token> previous;
  for (std::span<const Token> rest = corpus.train; newline && !rest.empty(); ++lines) {
    const std::size_t length = std::ranges::find(rest, *newline) - rest.begin();
    const std::span<const Token> line = rest.first(length);
    ascending += !std::ranges::lexicographical_compare(line, previous);
    previous = line;
    rest = rest.subspan(std::min(length + 1, rest.size()));
  }
  if (lines >= min_lines && static_cast<double>(ascending) > sorted_share * static_cast<double>(lines))
    remarks.push_back(
        "the lines of the text are sorted, so that its last part, for validation, differs from the rest; mix "
        "them: "
        "shuf TEXT");
  return remarks;
}

}  // namespace normscope
