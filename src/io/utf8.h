// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace normscope {

struct Utf8Character {
  char32_t code;  // the code point; meaningless unless valid
  int size;       // bytes of the character; if invalid, up to and including the first wrong byte
  bool valid;
};

// The character at the start of `bytes`, which must not be empty.
Utf8Character decode_utf8(std::string_view bytes);

// The columns that valid UTF-8 takes: continuation bytes and combining marks, U+0300 to U+033F, take none.
inline std::size_t shown_width(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80 && c != '\xCC'; });
}

bool is_utf8(std::string_view bytes);

void append_utf8(char32_t code, std::string& out);

constexpr char32_t last_code_point = 0x10FFFF;
constexpr bool is_surrogate(char32_t code) { return code >= 0xD800 && code <= 0xDFFF; }

// Makes `text` safe for a terminal or a one-line message: control characters (C0, DEL, C1), marks that
// reorder or break lines, and bytes that are not UTF-8 become \n, \t, \r, \xNN or \uNNNN. Control characters
// in `keep` stay.
std::string escape_controls(std::string_view text, std::string_view keep = "");

}  // namespace normscope
