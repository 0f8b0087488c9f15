// UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace normscope {

constexpr char32_t last_code_point = 0x10FFFF;
constexpr bool is_code_point(std::uint64_t code) {  // false for surrogates
  return code <= last_code_point && (code < 0xD800 || code > 0xDFFF);
}

struct Utf8Character {
  char32_t code;     // the code point
  std::size_t size;  // bytes
};

// The character at the start of `bytes`, which must not be empty; nullopt: the bytes are invalid.
std::optional<Utf8Character> decode_utf8(std::string_view bytes);

bool is_utf8(std::string_view bytes);

// The columns that valid UTF-8 takes: continuation bytes and combining marks, U+0300 to U+033F, take none.
inline std::size_t shown_width(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80 && c != '\xCC'; });
}

// The bytes of a code point; Error for another number.
std::string to_utf8(char32_t code);

// The text made safe for a terminal or a one-line message: control characters (C0, DEL, C1) except those in
// `keep`, marks that reorder or break lines, and bytes that are not UTF-8 become \xNN or \uNNNN.
std::string escape_controls(std::string_view text, std::string_view keep = "");

}  // namespace normscope
