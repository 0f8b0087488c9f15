#include "data/corpus.h"

#include <array>
#include <cmath>
#include <iomanip>
#include <limits>

#include "core/error.h"
#include "core/machine.h"
#include "core/text.h"
#include "io/file.h"
#include "io/utf8.h"

namespace normscope {
namespace {

constexpr double memory_per_byte = 9;  // of a text: itself, its code points, their tokens
// The first bytes of common files that are no UTF-8 text.
constexpr std::pair<std::string_view, std::string_view> other_formats[] = {
    {"\xFF\xFE", "it looks like UTF-16; convert it with iconv -f UTF-16 -t UTF-8"},
    {"\xFE\xFF", "it looks like UTF-16; convert it with iconv -f UTF-16 -t UTF-8"},
    {"\x1F\x8B", "it is compressed; unpack it with gunzip"},
    {"PK\x03\x04", "it is an archive or a document in one; take the text out of it first"},
    {"%PDF-", "it is a PDF; take the text out of it with pdftotext"},
    {"\x89PNG", "it is a picture"},
};
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

// `at` counts bytes of the file from 0; the bytes shown are those that were read as one character.
[[noreturn]] void refuse_bytes(const std::string& path, std::string_view bytes, std::size_t at, int size) {
  std::string shown;
  for (const unsigned char c : bytes.substr(at, size))
    shown +=
        text(shown.empty() ? "0x" : " 0x", std::hex, std::uppercase, std::setfill('0'), std::setw(2), +c);
  std::string_view advice = "convert it with iconv -f ENCODING -t UTF-8";
  for (const auto& [start, what] : other_formats) {
    if (bytes.starts_with(start)) advice = what;
  }
  refuse("corpus", escape_controls(path), ": invalid UTF-8 at byte ", at, " (", shown, "); ", advice);
}

}  // namespace

std::u32string read_text(const std::string& path, std::uint64_t* hash) {
  const std::string bytes =
      read_file(path, {.where = "corpus",
                       .exit = Exit::usage,
                       .max_bytes = static_cast<Index>(available_memory_bytes() / memory_per_byte),
                       .limit = ", more than this machine has memory for; use a shorter text"});
  if (hash) *hash = fnv1a(bytes, *hash);
  const std::string_view view = bytes;

  std::u32string characters;
  characters.reserve(bytes.size());
  for (std::size_t at = view.starts_with(byte_order_mark) ? byte_order_mark.size() : 0; at < view.size();) {
    const Utf8Character c = decode_utf8(view.substr(at));
    if (!c.valid) refuse_bytes(path, view, at, c.size);
    characters += c.code;
    at += c.size;
  }
  if (characters.empty()) refuse("corpus", escape_controls(path), ": is empty; expected text");
  return characters;
}

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
  std::uint64_t hash = fnv1a_basis;
  std::u32string own;
  for (const std::string& path : paths) own += read_text(path, &hash);
  const std::u32string apart = val_path.empty() ? std::u32string() : read_text(val_path, &hash);

  const std::u32string_view all = own;
  const Index split = val_path.empty() ? training_characters(std::ssize(own), val_fraction) : std::ssize(own);
  const std::u32string_view train = all.substr(0, split);
  const std::u32string_view val = val_path.empty() ? all.substr(train.size()) : std::u32string_view(apart);
  const std::string names = escape_controls(join(paths, " + "));

  if (std::ssize(train) < context + 1) {
    refuse("corpus", names, ": the training part has ", train.size(), " of ", own.size(),
           " characters; model.context = ", context, " needs at least ", context + 1,
           "; use a longer text, a smaller model.context",
           val_path.empty() ? " or a smaller data.val_fraction" : "");
  }
  const bool validates = !val_path.empty() || val_fraction > 0;
  if (validates && val.size() < 2) {
    refuse("corpus", val_path.empty() ? names : escape_controls(val_path), ": the validation part has ",
           val.size(), " characters; it needs at least 2; use a longer text",
           val_path.empty() ? ", a larger data.val_fraction, or 0 for no validation" : "");
  }
  const Vocabulary vocab = Vocabulary::of(std::array{all, std::u32string_view(apart)});
  return {vocab.encode(train, "corpus"), vocab.encode(val, "corpus"), vocab, hash};
}

}  // namespace normscope
