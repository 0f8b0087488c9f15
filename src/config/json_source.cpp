#include "config/json_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "io/file.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::json;

// The first byte that is NUL or no part of valid UTF-8; the text's size where all is well.
std::size_t first_bad_byte(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Character character = decode_utf8(text.substr(at));
    if (!character.valid || character.code == 0) break;
    at += static_cast<std::size_t>(character.size);
  }
  return at;
}

// nlohmann's message without its prefix, and without the whole of a long token.
std::string in_short(std::string message) {
  if (const auto prefix = message.find("syntax error "); prefix != std::string::npos)
    message.erase(0, prefix);
  const auto begin = message.find("; last read: ");
  const auto end = message.rfind("; expected ");
  const auto tail = end == std::string::npos || end < begin ? message.size() : end;
  if (begin != std::string::npos && tail - begin > 60) message.erase(begin, tail - begin);
  return message;
}

}  // namespace

// Receives nlohmann's SAX events. A cursor follows the parser through the same text, a token an event, so
// that every value's place is known; it may trust the syntax, since an event is only sent for a well-formed
// token.
class JsonTreeBuilder {
 public:
  JsonTreeBuilder(JsonSource& source, std::string_view topic)
      : source_(source),
        text_(source.text_),
        topic_(topic),
        cursor_(text_.starts_with("\xEF\xBB\xBF") ? 3 : 0) {}

  // The functions that nlohmann calls: names, arguments and results are its own. None returns false: they
  // throw.
  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(std::int64_t value) { return scalar(value); }
  bool number_unsigned(std::uint64_t value) { return scalar(value); }
  bool number_float(double value, const std::string&) { return scalar(value); }
  bool string(std::string& value) { return scalar(std::move(value)); }
  bool binary(json::binary_t&) { return false; }  // not in text
  bool start_object(std::size_t) { return open(json::object()); }
  bool start_array(std::size_t) { return open(json::array()); }

  bool end_object() {
    take_token();
    open_.pop_back();
    return true;
  }

  bool end_array() {
    take_token();
    // Only now is the list's memory settled.
    for (std::size_t i = 0; i < open_.back().entries.size(); ++i) {
      source_.offsets_[&(*open_.back().container)[i]] = open_.back().entries[i];
    }
    open_.pop_back();
    return true;
  }

  bool key(std::string& name) {
    const std::size_t start = take_token();
    json& object = *open_.back().container;
    if (const auto twin = object.find(name); twin != object.end()) {
      refuse_at(start, "duplicate key ", shown(name), "; the first is at ", source_.where(*twin));
    }
    open_.back().member = &object[name];
    source_.offsets_[open_.back().member] = start;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const json::exception& error) {
    const std::size_t offset = std::min(position == 0 ? 0 : position - 1, text_.size());
    if (error.id == 406)
      refuse_at(next_token(), "the number ", token.substr(0, 40), " does not fit a double");
    const std::string_view rest = std::string_view(text_).substr(std::min(next_token(), text_.size()));
    std::string what = in_short(error.what());
    for (const char* word : {"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"}) {
      if (rest.starts_with(word)) what = text(word, " is not a JSON number; expected a finite number");
    }
    throw JsonSyntaxError(Exit::usage,
                          text('[', topic_, "] ", source_.where(offset), ": ", escape_controls(what)));
  }

  template <class... Parts>
  [[noreturn]] void refuse_at(std::size_t offset, const Parts&... parts) const {
    refuse(topic_, source_.where(offset), ": ", parts...);
  }

 private:
  struct Open {
    json* container;
    json* member = nullptr;            // object: where the next value goes
    std::vector<std::size_t> entries;  // list: where its entries start
  };

  bool scalar(json value) {
    place(std::move(value), take_token());
    return true;
  }

  bool open(json empty) {
    const std::size_t start = take_token();
    if (open_.size() == JsonSource::max_depth) {
      refuse_at(start, "more than ", JsonSource::max_depth, " levels of nesting");
    }
    open_.push_back({place(std::move(empty), start), nullptr, {}});
    return true;
  }

  json* place(json value, std::size_t start) {
    if (open_.empty()) return &(source_.root_ = std::move(value));
    Open& parent = open_.back();
    if (parent.container->is_object()) return &(*parent.member = std::move(value));
    parent.entries.push_back(start);
    parent.container->push_back(std::move(value));
    return &parent.container->back();
  }

  // Where the next token starts: past blanks, comments and separators.
  std::size_t next_token() const {
    std::size_t at = cursor_;
    while (at < text_.size()) {
      if (std::strchr(" \t\r\n,:", text_[at])) {
        ++at;
      } else if (text_.compare(at, 2, "//") == 0) {
        at = std::min(text_.find_first_of("\r\n", at), text_.size());
      } else if (text_.compare(at, 2, "/*") == 0) {
        const std::size_t close = text_.find("*/", at + 2);
        at = close == std::string::npos ? text_.size() : close + 2;
      } else {
        break;
      }
    }
    return at;
  }

  // Moves past the next token; where it starts.
  std::size_t take_token() {
    const std::size_t start = next_token();
    std::size_t end = start + 1;
    if (text_[start] == '"') {
      while (text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
      ++end;
    } else if (!std::strchr("{}[]", text_[start])) {
      end = std::min(text_.find_first_of(" \t\r\n,:/{}[]\"", start), text_.size());
    }
    cursor_ = end;
    return start;
  }

  JsonSource& source_;
  const std::string& text_;
  std::string_view topic_;
  std::size_t cursor_;
  std::vector<Open> open_;
};

JsonSource JsonSource::parse(std::string text, std::string name, std::string_view topic) {
  JsonSource source(std::move(text), escape_controls(name));
  JsonTreeBuilder builder(source, topic);
  if (source.text_.size() > max_bytes) {
    refuse(topic, source.name_, ": is larger than ", max_bytes, " bytes");
  }
  if (const std::size_t bad = first_bad_byte(source.text_); bad < source.text_.size()) {
    builder.refuse_at(bad, source.text_[bad] == '\0' ? "a NUL byte" : "a byte that is not UTF-8");
  }
  json::sax_parse(source.text_, &builder, json::input_format_t::json, /*strict=*/true,
                  /*ignore_comments=*/true);
  return source;
}

JsonSource JsonSource::read(const std::filesystem::path& file, std::string_view topic) {
  const ReadOptions options = {.where = topic, .exit = Exit::usage, .max_bytes = max_bytes};
  return parse(read_file(file.string(), options), file.string(), topic);
}

std::vector<std::pair<std::string, const nlohmann::json*>> JsonSource::members(
    const nlohmann::json& object) const {
  std::vector<std::pair<std::string, const nlohmann::json*>> all;
  for (const auto& [name, value] : object.items()) all.emplace_back(name, &value);
  std::sort(all.begin(), all.end(),
            [&](const auto& a, const auto& b) { return offsets_.at(a.second) < offsets_.at(b.second); });
  return all;
}

std::string JsonSource::where(const json& value) const {
  const auto found = offsets_.find(&value);
  return found == offsets_.end() ? name_ : where(found->second);
}

std::string JsonSource::where(std::size_t offset) const {
  const std::string_view before = std::string_view(text_).substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  std::string_view start = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
  if (start.size() == before.size() && start.starts_with("\xEF\xBB\xBF")) start.remove_prefix(3);
  // Columns count characters, as editors do: continuation bytes are no characters of their own.
  const auto column =
      1 + std::count_if(start.begin(), start.end(), [](char c) { return (c & 0xC0) != 0x80; });
  return normscope::text(name_, ':', line, ':', column);
}

std::optional<Index> whole_number(const json& value) {
  constexpr double limit = 0x1p63;
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number < static_cast<std::uint64_t>(limit) ? std::optional(static_cast<Index>(number))
                                                      : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<Index>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  const bool fits = number >= -limit && number < limit && std::floor(number) == number;
  return fits ? std::optional(static_cast<Index>(number)) : std::nullopt;
}

std::string shown(const json& value) {
  constexpr std::size_t longest = 60;
  if (value.is_object()) return value.empty() ? "{}" : "an object";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  if (text.size() > longest) {
    std::size_t end = longest - 3;
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not within a character
    text = text.substr(0, end) + "...";
  }
  return escape_controls(text);
}

bool valid_utf8(std::string_view text) { return first_bad_byte(text) == text.size(); }

}  // namespace normscope
