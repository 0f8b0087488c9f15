// The UTF-8 reader: characters decode to what encodes to the same bytes, and text is refused exactly where
// another reader refuses it.
#include <nlohmann/json.hpp>

#include "data/corpus.h"
#include "fuzz.h"
#include "io/utf8.h"

namespace normscope::fuzz {

const MemoryLimit memory_limit = {256 << 10, 32};  // read_file() begins with a chunk of 64 KiB

std::vector<std::string> seeds() {
  return {"text\r\n", "\xEF\xBB\xBF\u00e9\u07ff\u0800\ud7ff\ue000\uffff", "\U00010000\U0010ffff",
          "\x1b[2J\u202e\x7f\u009b"};
}

void run(std::string_view bytes) {
  bool valid = true;
  std::u32string characters;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Character c = decode_utf8(bytes.substr(at));
    const auto size = static_cast<std::size_t>(c.size);
    expect(c.size >= 1 && c.size <= 4 && at + size <= bytes.size(), "a character is some of the bytes");
    std::string again;
    if (c.valid) append_utf8(c.code, again);
    expect(!c.valid || again == bytes.substr(at, size), "a character encodes to its bytes");
    valid = valid && c.valid;
    characters += c.code;
    at += size;
  }
  bool other_valid = true;
  try {
    nlohmann::json(bytes).dump();
  } catch (const nlohmann::json::exception&) {
    other_valid = false;
  }
  expect(valid == other_valid, "two readers agree on what is UTF-8");

  const std::string shown = escape_controls(bytes);
  for (const char c : shown)
    expect(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F, "what is shown drives no terminal");
  expect(escape_controls(shown) == shown, "what is shown can be shown");

  static const MemoryFile file;
  file.set(bytes);
  const std::u32string read = read_text(file.path());
  const std::size_t mark = characters.starts_with(U'\uFEFF') ? 1 : 0;
  expect(valid && read == characters.substr(mark), "a file is its characters, less the mark at its start");
}

}  // namespace normscope::fuzz
