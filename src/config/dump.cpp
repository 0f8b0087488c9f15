#include "config/dump.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "config/fields.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::ordered_json;

// The object that holds the last part of a dotted key, made where it is missing; and that last part. `inside`
// is the member in which an object keeps its own members: none in a config, "properties" in a schema.
std::pair<ordered_json*, std::string> holder_of(ordered_json& root, std::string_view key, const char* inside,
                                                const ordered_json& empty) {
  ordered_json* object = &root;
  for (;;) {
    ordered_json& members = inside ? (*object)[inside] : *object;
    const std::size_t dot = key.find('.');
    if (dot == std::string_view::npos) return {&members, std::string(key)};
    const std::string section(key.substr(0, dot));
    if (!members.contains(section)) members[section] = empty;
    object = &members[section];
    key.remove_prefix(dot + 1);
  }
}

struct Line {
  std::string text;
  std::string comment;
};

// On one line; with everything but ASCII escaped where escape_controls() would have to change it.
std::string line_of(const ordered_json& value) {
  const std::string plain = value.dump();
  return escape_controls(plain) == plain ? plain : value.dump(-1, ' ', /*ensure_ascii=*/true);
}

// Writes an object's members, a line each; values that are no objects stay on one line.
void write_members(const ordered_json& object, const std::string& key, const std::string& indent,
                   const std::map<std::string, std::string>& comments, std::vector<Line>& lines) {
  std::size_t left = object.size();
  for (const auto& [name, value] : object.items()) {
    const std::string whole = key.empty() ? name : key + "." + name;
    const char* comma = --left > 0 ? "," : "";
    const std::string start = indent + ordered_json(name).dump() + ": ";
    if (value.is_object() && !value.empty()) {
      lines.push_back({start + "{", ""});
      write_members(value, whole, indent + "  ", comments, lines);
      lines.push_back({indent + "}" + comma, ""});
    } else {
      const auto comment = comments.find(whole);
      lines.push_back({start + line_of(value) + comma, comment == comments.end() ? "" : comment->second});
    }
  }
}

std::string write(const ordered_json& object, const std::map<std::string, std::string>& comments) {
  std::vector<Line> lines = {{"{", ""}};
  write_members(object, "", "  ", comments, lines);
  lines.push_back({"}", ""});
  std::size_t column = 0;
  for (const Line& line : lines) {
    if (line.text.size() <= 48) column = std::max(column, line.text.size() + 2);
  }
  std::string out;
  for (const Line& line : lines) {
    out += line.text;
    // Origins hold file names, which may hold anything: a newline would end the comment.
    if (!line.comment.empty()) {
      out += std::string(std::max(column, line.text.size() + 2) - line.text.size(), ' ') + "// " +
             escape_controls(line.comment);
    }
    out += '\n';
  }
  return out;
}

// `words` in lines of at most `width`, broken at spaces.
std::vector<std::string> wrapped(std::string_view words, std::size_t width) {
  std::vector<std::string> lines;
  while (words.size() > width) {
    std::size_t cut = words.rfind(' ', width);
    if (cut == std::string_view::npos || cut == 0) cut = width;
    lines.emplace_back(words.substr(0, cut));
    words.remove_prefix(std::min(words.size(), cut + (words[cut] == ' ' ? 1 : 0)));
  }
  lines.emplace_back(words);
  return lines;
}

using Row = std::array<std::string, 4>;
constexpr std::array<std::size_t, 4> widths = {28, 29, 18, 29};  // and two blanks between: 110

std::string table_row(const Row& cells) {
  std::array<std::vector<std::string>, 4> columns;
  std::size_t height = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i] = wrapped(cells[i], widths[i]);
    height = std::max(height, columns[i].size());
  }
  std::string out;
  for (std::size_t k = 0; k < height; ++k) {
    std::string line;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      std::string cell = k < columns[i].size() ? columns[i][k] : "";
      cell.resize(widths[i] + 2, ' ');
      line += cell;
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return out;
}

}  // namespace

ordered_json dump(const RunConfig& config) {
  const ordered_json empty = ordered_json::object();
  ordered_json root = empty;
  for (const Field& field : fields()) {
    const ordered_json value = field.get(config);
    if (field.required && (value == 0 || value.empty())) continue;
    const auto [object, name] = holder_of(root, field.key, nullptr, empty);
    (*object)[name] = value;
  }
  return root;
}

std::string dump_text(const RunConfig& config) { return write(dump(config), {}); }

std::string dump_with_origin(const RunConfig& config, const std::map<std::string, std::string>& origins) {
  return write(dump(config), origins);
}

std::string describe_keys() {
  std::string out = table_row({"KEY", "TAKES", "DEFAULT", "MEANING"});
  for (const Field& field : fields())
    out += table_row({field.key, field.allowed, default_text(field), field.doc});
  out += table_row({"extends", "a file", "", "another config, under this one; relative to this file"});
  out += table_row({"$schema", "anything", "", "for editors; ignored"});
  return out;
}

ordered_json json_schema() {
  const ordered_json empty = {
      {"type", "object"}, {"additionalProperties", false}, {"properties", ordered_json::object()}};
  ordered_json root = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                       {"title", "normscope config"},
                       {"type", "object"},
                       {"additionalProperties", false}};
  root["properties"]["$schema"] = {{"type", "string"},
                                   {"description", "where editors find this schema; ignored"},
                                   {"x-bookkeeping", true}};
  root["properties"]["extends"] = {{"type", "string"},
                                   {"description", "another config, under this one; relative to this file"},
                                   {"x-bookkeeping", true}};
  for (const Field& field : fields()) {
    const auto [object, name] = holder_of(root, field.key, "properties", empty);
    ordered_json& property = (*object)[name];
    property["description"] = field.doc + (field.required ? " (required)" : "");
    property.update(field.schema);
    if (!field.default_words.empty()) {
      property["description"] = text(field.doc, " (default: ", field.default_words, ")");
    } else if (!field.required) {
      property["default"] = field.get(RunConfig{});
    }
    // What scripts need to know of a difference in the key; see Field.
    if (field.is_bookkeeping) property["x-bookkeeping"] = true;
    if (field.names_text) property["x-text"] = true;
    if (field.apply_default) property["x-derived"] = true;
    if (!field.uses.empty()) property["x-used-when"] = field.uses;
    if (!field.uses.empty()) property["x-idle"] = field.idle_words;
    if (!field.label.empty()) property["x-label"] = field.label;
  }
  return root;
}

std::string json_schema_text() { return json_schema().dump(2) + "\n"; }

std::vector<Difference> keys_that_differ(const RunConfig& a, const RunConfig& b) {
  std::vector<Difference> all;
  for (const Field& field : fields()) {
    const ordered_json left = field.get(a), right = field.get(b);
    if (left == right) continue;
    all.push_back({field.key, text(quote(left), " -> ", quote(right)), field.may_change_on_resume});
  }
  return all;
}

std::string fixed_differences(const RunConfig& a, const RunConfig& b) {
  std::string keys;
  for (const Difference& d : keys_that_differ(a, b)) {
    if (!d.may_change_on_resume) keys += text(keys.empty() ? "" : ", ", d.key, " (", d.values, ")");
  }
  return keys;
}

}  // namespace normscope
