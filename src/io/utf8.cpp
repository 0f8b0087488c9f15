#include "io/utf8.h"

#include "core/error.h"
#include "core/random.h"

namespace normscope {
namespace {

unsigned char byte_at(std::string_view bytes, int i) { return static_cast<unsigned char>(bytes[i]); }

// C0, DEL and C1 drive terminals; the others are invisible and reorder or break the line they stand in.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F || c == 0xFEFF ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string escape(char32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  return c < 0x100 ? "\\x" + hex(c).substr(14) : "\\u" + hex(c).substr(12);
}

}  // namespace

Utf8Character decode_utf8(std::string_view bytes) {
  const unsigned char lead = byte_at(bytes, 0);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xC2 || lead > 0xF4) return {0, 1, false};  // a continuation byte, an overlong form or too large

  const int size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code = lead & (0x7Fu >> size);
  // Table 3-7 of the Unicode standard: only the second byte is ever restricted further than 80..BF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;   // below: overlong
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;  // above: surrogate, over U+10FFFF
  for (int i = 1; i < size; ++i) {
    if (i >= std::ssize(bytes)) return {0, i, false};
    const unsigned char next = byte_at(bytes, i);
    if (next < low || next > high) return {0, i + 1, false};
    code = (code << 6) | (next & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {code, size, true};
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Character character = decode_utf8(bytes);
    if (!character.valid) return false;
    bytes.remove_prefix(character.size);
  }
  return true;
}

void append_utf8(char32_t code, std::string& out) {
  require(code <= last_code_point && !is_surrogate(code), "utf8",
          "not a code point: ", static_cast<std::uint32_t>(code));
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  out += static_cast<char>((0xF00u >> size) | (code >> (6 * (size - 1))));  // size ones, a zero, the top bits
  for (int shift = 6 * (size - 2); shift >= 0; shift -= 6)
    out += static_cast<char>(0x80 | ((code >> shift) & 0x3F));
}

std::string escape_controls(std::string_view text, std::string_view keep) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character c = decode_utf8(text);
    const std::string_view bytes = text.substr(0, c.valid ? c.size : 1);
    const bool is_shown = c.valid && (!is_control(c.code) || keep.find(bytes) != keep.npos);
    out += is_shown ? std::string(bytes) : escape(c.valid ? c.code : byte_at(text, 0));
    text.remove_prefix(bytes.size());
  }
  return out;
}

}  // namespace normscope
