// The UTF-8 reader: characters decode to what encodes to the same bytes, and text is refused exactly where
// another reader refuses it.
#include <nlohmann/json.hpp>
#include <set>

#include "data/corpus.h"
#include "fuzz.h"
#include "io/utf8.h"

namespace normscope::fuzz {

std::vector<std::string> seeds() {
  return {"text\r\n", "\xEF\xBB\xBF\u00e9\u07ff\u0800\ud7ff\ue000\uffff", "\U00010000\U0010ffff",
          "\x1b[2J\u202e\x7f\u009b"};
}

void run(std::string_view bytes) {
  std::string again;
  std::set<char32_t> characters;
  for (std::string_view rest = bytes; !rest.empty();) {
    const auto character = decode_utf8(rest);
    if (!character) break;
    again += to_utf8(character->code);
    characters.insert(character->code);
    rest.remove_prefix(character->size);
  }
  expect(bytes.starts_with(again), "characters encode to their bytes");
  const bool valid = again.size() == bytes.size();
  expect(is_utf8(bytes) == valid, "a text is valid if its characters are");
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

  const std::string text = read_text(file_with(bytes));
  expect(text == bytes, "a file is read as it is");
  const Vocabulary vocabulary({characters.begin(), characters.end()});
  const std::string read = vocabulary.decode(vocabulary.encode(text, "fuzz", "the text"));
  const std::size_t mark = bytes.starts_with("\uFEFF") ? 3 : 0;
  expect(valid && read == bytes.substr(mark), "a file is its characters, less the mark at its start");
}

}  // namespace normscope::fuzz
