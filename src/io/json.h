// JSON text as a tree that knows where in the text each value stands: configs, safetensors headers.
//
// nlohmann's own parse() keeps the last of duplicate keys silently, takes a NUL for the end of the text, and
// crashes on copying very deep trees. All of that is refused here, before it is in the tree.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/types.h"

namespace normscope {

// Upper limits on a text. The defaults are those of configs.
struct JsonLimits {
  std::size_t bytes = 1 << 20;
  std::size_t depth = 64;
  std::size_t list_entries = 1 << 20;
  bool comments = true;
};

// A parsed text. It can be moved but not copied, because where() identifies values by their address.
class JsonDocument {
 public:
  // Reads a file. Every Error is of usage: [topic] file:line:column: what.
  static JsonDocument read(const std::filesystem::path& file, std::string_view topic);

  // Parses `text`, called `name` in errors.
  static JsonDocument parse(std::string text, std::string_view name, std::string_view topic,
                            const JsonLimits& limits = {});

  JsonDocument(JsonDocument&&) = default;
  JsonDocument& operator=(JsonDocument&&) = default;

  const nlohmann::json& root() const { return root_; }
  const std::string& name() const { return name_; }

  // "name:line:column" of a value inside root(): a member is found at its key. The root itself is "name".
  std::string where(const nlohmann::json& value) const;

 private:
  friend class JsonTreeBuilder;
  JsonDocument() = default;
  std::string where(std::size_t offset) const;

  std::string text_, name_;
  nlohmann::json root_;
  // Members and list entries by address. Containers live on the heap, so moving the document moves no value.
  std::unordered_map<const nlohmann::json*, std::size_t> offsets_;
};

// `word` as JSON, or as a string where it is no JSON: the VALUE of `--set KEY=VALUE`. Other Errors as
// parse().
nlohmann::json json_or_string(const std::string& word, std::string_view name, std::string_view topic);

// The value as an integer: 3, 1e3 and 2.0 are; 3.7, true, "3" and what does not fit 64 bits are not.
std::optional<Index> whole_number(const nlohmann::json& value);

// The value of a text that this program wrote, with its keys in their order; `is_discarded()` if it is no
// JSON.
nlohmann::ordered_json parse_json(std::string_view text);

// The value's text on one line; nlohmann's type_error for a string that is no UTF-8.
std::string json_line(const nlohmann::ordered_json& value);

// The value's text indented by two spaces, with a newline at the end; in ASCII where it is not safe for a
// terminal otherwise. Bytes that are no UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& value);

// The value as a message quotes it: on one line, safe for a terminal, cut where it is long.
std::string quote(const nlohmann::json& value);

// Whether a text can stand in JSON and in a path: valid UTF-8, no NUL.
bool valid_utf8(std::string_view text);

}  // namespace normscope
