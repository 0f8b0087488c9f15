#include "io/utf8.h"

#include <bit>

#include "core/error.h"
#include "core/random.h"

namespace normscope {
namespace {

constexpr char32_t least_of_size[] = {0, 0, 0x80, 0x800, 0x10000};  // by bytes; a smaller code is overlong

// C0, DEL and C1 drive terminals; the others are invisible and reorder or break the line they stand in.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F || c == 0xFEFF ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string escape(char32_t c) { return c < 0x100 ? "\\x" + hex(c).substr(14) : "\\u" + hex(c).substr(12); }

}  // namespace

std::optional<Utf8Character> decode_utf8(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x80) return Utf8Character{lead, 1};
  const std::size_t size = std::countl_one(lead);
  if (size == 1 || size > 4 || size > bytes.size()) return std::nullopt;
  char32_t code = lead & (0x7Fu >> size);
  for (const char next : bytes.substr(1, size - 1)) {
    if ((next & 0xC0) != 0x80) return std::nullopt;
    code = (code << 6) | (next & 0x3F);
  }
  if (code < least_of_size[size] || !is_code_point(code)) return std::nullopt;
  return Utf8Character{code, size};
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto character = decode_utf8(bytes);
    if (!character) return false;
    bytes.remove_prefix(character->size);
  }
  return true;
}

std::string to_utf8(char32_t code) {
  require(is_code_point(code), "utf8", "not a code point: ", static_cast<std::uint32_t>(code));
  if (code < 0x80) return {static_cast<char>(code)};
  int size = 2;
  while (size < 4 && code >= least_of_size[size + 1]) ++size;
  std::string bytes = {
      static_cast<char>((0xF00u >> size) | (code >> (6 * (size - 1))))};  // `size` ones, a zero
  for (int shift = 6 * (size - 2); shift >= 0; shift -= 6)
    bytes += static_cast<char>(0x80 | ((code >> shift) & 0x3F));
  return bytes;
}

std::string escape_controls(std::string_view text, std::string_view keep) {
  std::string out;
  while (!text.empty()) {
    const auto character = decode_utf8(text);
    const std::string_view bytes = text.substr(0, character ? character->size : 1);
    const char32_t code = character ? character->code : static_cast<unsigned char>(text[0]);
    const bool is_shown = character && (!is_control(code) || keep.find(bytes) != keep.npos);
    out += is_shown ? std::string(bytes) : escape(code);
    text.remove_prefix(bytes.size());
  }
  return out;
}

}  // namespace normscope
