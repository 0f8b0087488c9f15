// JSON as people write it: the tree, and where in the file each value stands.
//
// nlohmann's own parse() keeps the last of duplicate keys silently, takes a NUL for the end of the text, and
// crashes on copying very deep trees. Reading goes through its SAX parser here, and all of that is refused on
// the way in.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/types.h"

namespace normscope {

// The text is not JSON at all. Apart from other errors because `--set KEY=VALUE` then takes VALUE as a
// string.
struct JsonSyntaxError : Error {
  using Error::Error;
};

// A parsed text. It can be moved but not copied: where() knows values by their address.
class JsonSource {
 public:
  static constexpr std::size_t max_bytes = 1 << 20;
  static constexpr std::size_t max_depth = 64;

  // Reads a file; `topic` is the [where] of errors, which say file, line and column. Throws Error{usage}
  // alone.
  static JsonSource read(const std::filesystem::path& file, std::string_view topic);

  // Parses `text`, called `name` in errors.
  static JsonSource parse(std::string text, std::string name, std::string_view topic);

  JsonSource(JsonSource&&) = default;
  JsonSource& operator=(JsonSource&&) = default;

  const nlohmann::json& root() const { return root_; }
  const std::string& name() const { return name_; }

  // The members of an object inside root(), in the order in which they are written.
  std::vector<std::pair<std::string, const nlohmann::json*>> members(const nlohmann::json& object) const;

  // "name:line:column" of a value inside root(): a member is found at its key. The root itself is "name".
  std::string where(const nlohmann::json& value) const;

 private:
  friend class JsonTreeBuilder;
  JsonSource(std::string text, std::string name) : text_(std::move(text)), name_(std::move(name)) {}
  std::string where(std::size_t offset) const;

  std::string text_;
  std::string name_;
  nlohmann::json root_;
  // Members and list entries by address. Containers live on the heap, so moving the source moves none of
  // them.
  std::unordered_map<const nlohmann::json*, std::size_t> offsets_;
};

// The value as an integer: 3, 1e3 and 2.0 are; 3.7, true, "3" and what does not fit 64 bits are not.
std::optional<Index> whole_number(const nlohmann::json& value);

// The value as a message shows it: on one line, safe for a terminal, cut where it is long.
std::string shown(const nlohmann::json& value);

// Whether a text can stand in JSON and in a path: valid UTF-8, no NUL.
bool valid_utf8(std::string_view text);

}  // namespace normscope
