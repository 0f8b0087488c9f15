// JSON text in and out, by nlohmann's parser and printer.
//
// nlohmann keeps the last of duplicate keys silently, takes a NUL for the end of the text, and crashes on
// copying very deep trees. All of that is refused here.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/types.h"

namespace normscope {

using Json = nlohmann::ordered_json;  // members in the order in which they are written

// The value of a text called `name` in errors, as Json or, with sorted members, nlohmann::json. Comments are
// allowed. Errors `[topic] name: what`, for a syntax error with line and column.
template <class Value = Json>
Value parse_json(std::string_view text, std::string_view name, std::string_view topic,
                 Exit exit = Exit::usage);

// The value of a file of at most 1 MiB, as parse_json().
Json read_json(const std::string& path, std::string_view topic);

// `word` as JSON, or as a string if it is not JSON: the VALUE of `--set KEY=VALUE`.
Json json_or_string(const std::string& word, std::string_view name, std::string_view topic);

// The value as an integer: 3, 1e3 and 2.0 are integers; 3.7, true, "3" and numbers beyond 64 bits are not.
std::optional<Index> whole_number(const Json& value);

// The value's text indented by two spaces, with a newline at the end; in ASCII if it is not safe for a
// terminal otherwise. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const Json& value);

// The value as a message quotes it: on one line, safe for a terminal, at most 60 bytes long.
std::string quote(const Json& value);

}  // namespace normscope
