#include "io/json.h"

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "io/file.h"
#include "io/utf8.h"

namespace normscope {

namespace {

// The parser's words, "parse error at line 1, column 9: syntax error while parsing object - unexpected string
// literal; expected '}'", in which a value where a list or an object should end means a missing comma.
std::string explained(std::string what) {
  const std::size_t place = what.find(": syntax error"), token = what.find(" - unexpected ");
  if (place == what.npos || token == what.npos) return what;
  const bool may_end = what.ends_with("; expected '}'") || what.ends_with("; expected ']'");
  const std::string_view found = std::string_view(what).substr(token);
  const bool is_value = found.find(" literal;") != found.npos || found.find("'{'") != found.npos ||
                        found.find("'[';") != found.npos;
  return may_end && is_value ? what.substr(0, place) + ": a comma is missing before this" : what;
}

}  // namespace

template <class Value>
Value parse_json(std::string_view text, std::string_view name, std::string_view topic, Exit exit) {
  constexpr int max_depth = 64;
  const auto stop = [&](const auto&... what) {
    throw Error(exit, normscope::text('[', topic, "] ", name, ": ", what...));
  };
  if (text.find('\0') != text.npos) stop("contains a NUL byte");
  std::vector<std::set<std::string>> keys;  // of each open object
  const auto on_event = [&](int depth, typename Value::parse_event_t event, Value& parsed) {
    using Event = typename Value::parse_event_t;
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && depth >= max_depth) stop("more than ", max_depth, " levels of nesting");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.template get<std::string>()).second)
      stop("duplicate key ", quote(parsed));
    return true;
  };
  try {
    return Value::parse(text, on_event, /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (const nlohmann::json::exception& error) {
    const std::string what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    stop(escape_controls(explained(what.substr(what.find("] ") + 2)).substr(0, 300)));
  }
  return Value();
}

template Json parse_json(std::string_view, std::string_view, std::string_view, Exit);
template nlohmann::json parse_json(std::string_view, std::string_view, std::string_view, Exit);

Json read_json(const std::string& path, std::string_view topic) {
  return parse_json(read_file(path, topic, /*max_bytes=*/1 << 20), path, topic);
}

Json json_or_string(const std::string& word, std::string_view name, std::string_view topic) {
  return Json::accept(word, /*ignore_comments=*/true) ? parse_json(word, name, topic) : Json(word);
}

std::optional<Index> whole_number(const Json& value) {
  bool fits = value.is_number_integer();  // unsigned numbers are integers too
  if (value.is_number_unsigned()) fits = std::in_range<Index>(value.get<std::uint64_t>());
  if (value.is_number_float()) {
    const double number = value.get<double>();
    fits = number >= -0x1p63 && number < 0x1p63 && std::floor(number) == number;
  }
  return fits ? std::optional(value.get<Index>()) : std::nullopt;
}

std::string json_text(const Json& value) {
  const auto indented = [&](bool ascii) {
    return value.dump(2, ' ', ascii, Json::error_handler_t::replace) + "\n";
  };
  const std::string plain = indented(false);
  return escape_controls(plain, "\n") == plain ? plain : indented(true);
}

std::string quote(const Json& value) {
  constexpr std::size_t max_bytes = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  if (text.size() > max_bytes) text = text.substr(0, max_bytes - 3) + "...";
  return escape_controls(text);
}

}  // namespace normscope
