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

  explicit Vocabulary(std::u32string ascending);

  // From a JSON list of code points, as in a checkpoint's metadata. Error, with the file `name`: not a list,
  // empty, or not strictly ascending.
  static Vocabulary from_json(std::string_view json, std::string_view name);
  std::string to_json() const;  // [10,32,33]

  Index size() const { return std::ssize(characters_); }
  std::optional<Token> find(char32_t character) const;

  // The tokens of UTF-8 called `name` in errors, without a byte order mark (BOM) at its start. Usage Errors
  // `[topic] ...`: invalid bytes, with the position of the first; a character that the vocabulary lacks.
  std::vector<Token> encode(std::string_view text, std::string_view topic, std::string_view name) const;
  std::string decode(std::span<const Token> tokens) const;  // UTF-8; Error if there is no such token
  std::string text() const;                                 // all characters, UTF-8

  bool operator==(const Vocabulary&) const = default;

 private:
  std::u32string characters_;
  std::vector<Token> token_of_;  // by code point, up to the largest known; `unknown` elsewhere
};

// A file's bytes. Usage Errors `[corpus] ...`: the file is missing, empty or too large for the free memory.
std::string read_text(const std::string& path);

struct Corpus {
  std::vector<Token> train;
  std::vector<Token> val;  // empty without a validation part
  Vocabulary vocab;        // of both parts, or a larger one that load_corpus() was given
  std::uint64_t hash = 0;  // FNV-1a 64 of the text, with a byte 0xFF before that of `val_path`
};

// Reads `paths`, one after the other, as one text, in which each file but the last ends in a newline. Its
// last part (`val_fraction`) is for validation, unless `val_path` names another text for that. A BOM at the
// start of a file is no character; line ends stay as they are, so a CR is one. `context` is T: a training
// sequence takes T+1 characters. `known` becomes the vocabulary if it has all characters of the text: that of
// the model which is to read the text. A byte of text takes at most 5 bytes of memory, 4 for its token and 1
// for the file; 6 are asked for. Usage Errors `[corpus] ...`: a file that is missing, empty, not UTF-8 or too
// large for the free memory; a part that is too short.
Corpus load_corpus(const std::vector<std::string>& paths, double val_fraction, const std::string& val_path,
                   Index context, const Vocabulary& known = {});

// The characters, quoted, that occur in the validation part alone: no model of the training part can learn
// them.
std::vector<std::string> unseen_characters(const Corpus& corpus);

// floor((1 - val_fraction) * characters), exactly: 0.9 of 10 leaves 1, though 1 - 0.9 is a little under 0.1.
Index training_characters(Index characters, double val_fraction);

}  // namespace normscope
