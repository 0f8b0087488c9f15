// The characters of a model, as sorted Unicode code points; a token is an index into that list.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace normscope {

using Token = std::int32_t;

class Vocabulary {
 public:
  Vocabulary() = default;

  // Every character that occurs in `texts`.
  static Vocabulary of(std::span<const std::u32string_view> texts);

  // From a JSON list of code points, as in a checkpoint's metadata. Error, with the file `where`: not a list,
  // empty, or not strictly ascending.
  static Vocabulary from_json(std::string_view json, std::string_view where);
  std::string to_json() const;  // [10,32,33]

  Index size() const { return static_cast<Index>(characters_.size()); }
  const std::u32string& characters() const { return characters_; }

  std::optional<Token> find(char32_t character) const;
  char32_t character(Token token) const;  // Error if there is no such token

  // Usage Error with the unknown characters: `[where] ...`.
  std::vector<Token> encode(std::u32string_view text, std::string_view where) const;
  std::vector<Token> encode_utf8(std::string_view text, std::string_view where) const;
  std::string decode(std::span<const Token> tokens) const;  // UTF-8

  bool operator==(const Vocabulary& other) const { return characters_ == other.characters_; }

 private:
  explicit Vocabulary(std::u32string characters);

  std::u32string characters_;
  std::vector<Token> token_of_;  // by code point, up to the largest known; `unknown` elsewhere
};

}  // namespace normscope
