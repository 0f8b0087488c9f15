// The characters of a model, and the training text and validation text of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "core/types.h"

namespace normscope {

using Token = std::int32_t;  // an index into the vocabulary

// Sorted Unicode code points.
class Vocabulary {
 public:
  Vocabulary() = default;

  // Every character that occurs in `text`.
  static Vocabulary of(std::u32string_view text);

  // From a JSON list of code points, as in a checkpoint's metadata. Error, with the file `name`: not a list,
  // empty, or not strictly ascending.
  static Vocabulary from_json(std::string_view json, std::string_view name);
  std::string to_json() const;  // [10,32,33]

  Index size() const { return std::ssize(characters_); }
  std::optional<Token> find(char32_t character) const;
  char32_t character(Token token) const;  // Error if there is no such token

  // Usage Error with an unknown character: `[topic] ...`.
  std::vector<Token> encode(std::u32string_view text, std::string_view topic) const;
  std::string decode(std::span<const Token> tokens) const;  // UTF-8

  bool operator==(const Vocabulary&) const = default;

 private:
  explicit Vocabulary(std::u32string characters);

  std::u32string characters_;
  std::vector<Token> token_of_;  // by code point, up to the largest known; `unknown` elsewhere
};

// The characters of UTF-8. Usage Error `[topic] name: ...`: invalid bytes, with the place of the first.
std::u32string decode_text(std::string_view bytes, std::string_view topic, std::string_view name);

// A file's characters, without a leading BOM. Continues `hash`, if given, over the file's bytes.
std::u32string read_text(const std::string& path, std::uint64_t* hash = nullptr);

struct Corpus {
  std::vector<Token> train;
  std::vector<Token> val;  // empty without a validation part
  Vocabulary vocab;        // of both parts
  std::uint64_t hash = 0;  // FNV-1a 64 of the bytes of all files; 0xFF comes before those of `val_path`
};

// Reads `paths`, one after the other, as one text. Its last part (`val_fraction`) is for validation; with a
// `val_path` that file is, and all of `paths` is for training. `context` is T: a training sequence takes T+1
// characters. Usage Errors `[corpus] ...`: a file that is missing, empty or not UTF-8, a part too short.
Corpus load_corpus(const std::vector<std::string>& paths, double val_fraction, const std::string& val_path,
                   Index context);

// floor((1 - val_fraction) * characters), exactly: 0.9 of 10 leaves 1, though 1 - 0.9 is a little under 0.1.
Index training_characters(Index characters, double val_fraction);

}  // namespace normscope
