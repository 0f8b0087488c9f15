#include "io/json.h"

#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

#include "io/file.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::json, nlohmann::ordered_json;

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

// A text that is no JSON at all.
struct JsonSyntaxError : Error {
  using Error::Error;
};

// The first byte that is NUL or no part of valid UTF-8, else the size of the text.
std::size_t first_bad_byte(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Character character = decode_utf8(text.substr(at));
    if (!character.valid || character.code == 0) break;
    at += character.size;
  }
  return at;
}

}  // namespace

// Receives nlohmann's SAX events; the names, arguments and results of its public functions are nlohmann's.
// The stream's position after an event is the end of the event's token.
class JsonTreeBuilder {
 public:
  JsonTreeBuilder(JsonDocument& document, std::string_view topic, const JsonLimits& limits)
      : document_(document),
        text_(document.text_),
        topic_(topic),
        limits_(limits),
        stream_(text_),
        token_end_(text_.starts_with(byte_order_mark) ? byte_order_mark.size() : 0) {}

  void build() {
    if (text_.size() > limits_.bytes)
      refuse(topic_, document_.name_, ": is larger than ", limits_.bytes, " bytes");
    if (const std::size_t bad = first_bad_byte(text_); bad < text_.size())
      refuse_at(bad, text_[bad] == '\0' ? "a NUL byte" : "a byte that is not UTF-8");
    json::sax_parse(stream_, this, json::input_format_t::json, /*strict=*/true, limits_.comments);
  }

  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(std::int64_t value) { return scalar(value); }
  bool number_unsigned(std::uint64_t value) { return scalar(value); }
  bool number_float(double value, const std::string&) { return scalar(value); }
  bool string(std::string& value) { return scalar(std::move(value)); }
  bool binary(json::binary_t&) { return false; }  // not in text
  bool start_object(std::size_t) { return open(json::object()); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const std::size_t start = take_token();
    const auto [member, is_new] = open_.back().container->emplace(name, nullptr);
    if (!is_new)
      refuse_at(start, "duplicate key ", quote(name), "; the first is at ", document_.where(*member));
    document_.offsets_[open_.back().member = &*member] = start;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const json::exception& error) {
    const std::size_t start = next_token();
    if (error.id == 406) refuse_at(start, "the number ", token.substr(0, 40), " does not fit a double");
    // nlohmann's message without its prefix, and without the whole of a long token.
    std::string what = error.what();
    if (const auto prefix_end = what.find(": "); prefix_end != what.npos) what.erase(0, prefix_end + 2);
    if (!what.starts_with("syntax error")) what.insert(0, "syntax error: ");  // 3.11.3, of an empty text
    if (const auto quote = what.find("; last read: "); quote != what.npos)
      what = what.substr(0, quote) + "; got " + token.substr(0, 60);
    for (const char* word : {"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"}) {
      if (text_.compare(std::min(start, text_.size()), std::strlen(word), word) == 0)
        what = text(word, " is not a JSON number; expected a finite number");
    }
    const std::string where = document_.where(std::min(position - (position > 0), text_.size()));
    throw JsonSyntaxError(Exit::usage, text('[', topic_, "] ", where, ": ", escape_controls(what)));
  }

 private:
  struct Open {
    json* container;
    json* member = nullptr;            // object: where the next value goes
    std::vector<std::size_t> entries;  // list: where its entries start
  };

  template <class... Parts>
  [[noreturn]] void refuse_at(std::size_t offset, const Parts&... parts) const {
    refuse(topic_, document_.where(offset), ": ", parts...);
  }

  bool scalar(json value) {
    const bool is_number = value.is_number();
    add(std::move(value), take_token());
    token_end_ -= is_number;  // the parser has read one character more, to see that the number ends
    return true;
  }

  bool open(json empty) {
    const std::size_t start = take_token();
    if (open_.size() == limits_.depth) refuse_at(start, "more than ", limits_.depth, " levels of nesting");
    open_.push_back({add(std::move(empty), start), nullptr, {}});
    return true;
  }

  bool close() {
    take_token();
    const Open& list = open_.back();  // only now is a list's memory settled
    for (std::size_t i = 0; i < list.entries.size(); ++i)
      document_.offsets_[&(*list.container)[i]] = list.entries[i];
    open_.pop_back();
    return true;
  }

  json* add(json value, std::size_t start) {
    if (open_.empty()) return &(document_.root_ = std::move(value));
    Open& parent = open_.back();
    if (parent.container->is_object()) return &(*parent.member = std::move(value));
    if (parent.entries.size() == limits_.list_entries)
      refuse_at(start, "a list of more than ", limits_.list_entries, " entries");
    parent.entries.push_back(start);
    return &parent.container->emplace_back(std::move(value));
  }

  // Where the next token starts: past blanks, comments and separators.
  std::size_t next_token() const {
    std::size_t at = token_end_;
    while (at < text_.size()) {
      if (std::strchr(" \t\r\n,:", text_[at])) {
        ++at;
      } else if (text_.compare(at, 2, "//") == 0) {
        at = text_.find_first_of("\r\n", at);
      } else if (text_.compare(at, 2, "/*") == 0) {
        const std::size_t close = text_.find("*/", at + 2);
        at = close == text_.npos ? close : close + 2;
      } else {
        break;
      }
    }
    return at;
  }

  // Where the token starts that the parser has just read.
  std::size_t take_token() {
    const std::size_t start = next_token();
    token_end_ = stream_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in);
    return start;
  }

  JsonDocument& document_;
  const std::string& text_;
  const std::string_view topic_;
  const JsonLimits& limits_;
  std::istringstream stream_;
  std::size_t token_end_;
  std::vector<Open> open_;
};

JsonDocument JsonDocument::parse(std::string text, std::string_view name, std::string_view topic,
                                 const JsonLimits& limits) {
  JsonDocument document;
  document.text_ = std::move(text);
  document.name_ = escape_controls(name);
  JsonTreeBuilder(document, topic, limits).build();
  return document;
}

JsonDocument JsonDocument::read(const std::filesystem::path& file, std::string_view topic) {
  const ReadOptions options = {.where = topic, .exit = Exit::usage, .max_bytes = JsonLimits{}.bytes};
  return parse(read_file(file.string(), options), file.string(), topic);
}

json json_or_string(const std::string& word, std::string_view name, std::string_view topic) try {
  return JsonDocument::parse(word, name, topic).root();
} catch (const JsonSyntaxError&) {
  return word;
}

std::string JsonDocument::where(const json& value) const {
  const auto found = offsets_.find(&value);
  return found == offsets_.end() ? name_ : where(found->second);
}

std::string JsonDocument::where(std::size_t offset) const {
  const std::string_view before = std::string_view(text_).substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  std::string_view start = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
  if (line == 1 && start.starts_with(byte_order_mark)) start.remove_prefix(byte_order_mark.size());
  return normscope::text(name_, ':', line, ':', 1 + shown_width(start));  // characters, as editors count
}

std::optional<Index> whole_number(const json& value) {
  bool fits = value.is_number_integer();  // unsigned numbers are integers too
  if (value.is_number_unsigned()) fits = std::in_range<Index>(value.get<std::uint64_t>());
  if (value.is_number_float()) {
    const double number = value.get<double>();
    fits = number >= -0x1p63 && number < 0x1p63 && std::floor(number) == number;
  }
  return fits ? std::optional(value.get<Index>()) : std::nullopt;
}

ordered_json parse_json(std::string_view text) {
  return ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string json_line(const ordered_json& value) { return value.dump(); }

std::string json_text(const ordered_json& value) {
  const auto indented = [&](bool ascii) {
    return value.dump(2, ' ', ascii, ordered_json::error_handler_t::replace) + "\n";
  };
  const std::string plain = indented(false);
  return escape_controls(plain, "\n") == plain ? plain : indented(true);
}

std::string quote(const json& value) {
  constexpr std::size_t max_bytes = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  if (text.size() > max_bytes) {
    std::size_t end = max_bytes - 3;
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not within a character
    text = text.substr(0, end) + "...";
  }
  return escape_controls(text);
}

bool valid_utf8(std::string_view text) { return first_bad_byte(text) == text.size(); }

}  // namespace normscope
