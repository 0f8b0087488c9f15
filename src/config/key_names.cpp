// Finds the key that a user means: written in full, without its section, by another program's name, or
// misspelt.
#include <algorithm>

#include "config/fields.h"
#include "core/error.h"
#include "core/text.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

// The key with the name `word`, in full, without its section or in another program (learning_rate); else
// null.
const Field* field_called(std::string_view word) {
  std::string plain(word);
  std::ranges::replace(plain, '-', '_');
  for (const Field& field : fields()) {
    if (plain == field.key || plain == last_part(field.key)) return &field;
  }
  for (const Field& field : fields()) {
    for (const auto* names : {&field.other_names, &field.other_quantities}) {
      if (std::ranges::count(*names, last_part(plain))) return &field;
    }
  }
  return nullptr;
}

// The key or section that `key` most likely means; empty where none is near.
std::string nearest_key(std::string_view key) {
  if (const Field* called = field_called(key)) return called->key;
  std::vector<std::string> whole, last;  // last: without the section, which may be wrong or missing
  for (const Field& field : fields()) {
    whole.push_back(field.key.substr(0, field.key.find('.')));
    whole.push_back(field.key);
    last.emplace_back(last_part(field.key));
  }
  if (const std::string best = nearest(key, whole); !best.empty()) return best;
  const auto found = std::ranges::find(last, nearest(last_part(key), last));
  return found == last.end() ? "" : fields()[found - last.begin()].key;
}

bool accepts(const Field& field, const std::string& value) try {
  RunConfig config;
  return field.set(config, json_or_string(value, "--set", "config")).empty();
} catch (const Error&) {
  return false;
}

std::string setting(const Field& field, const std::string& value) {
  return accepts(field, value)
             ? text("--set ", field.key, "=", escape_controls(value), "?")
             : text("--set ", field.key, "=VALUE? It takes ", field.allowed, " (", field.doc, ")");
}

// The only key, apart from paths and names, that accepts this value; else null.
const Field* only_field_with(const std::string& value) {
  const Field* only = nullptr;
  for (const Field& field : fields()) {
    if (field.names_text || field.key == "name" || !accepts(field, value)) continue;
    if (only != nullptr) return nullptr;
    only = &field;
  }
  return only;
}

}  // namespace

bool is_section(std::string_view key) {
  return std::ranges::any_of(fields(), [&](const Field& f) { return f.key.starts_with(text(key, '.')); });
}

std::string setting_called(std::string_view name, const std::string& value) {
  const Field* field = field_called(name);
  return field == nullptr ? ""
                          : setting(*field, std::ranges::count(field->other_quantities, name) ? "" : value);
}

std::string setting_meant(std::string_view word, const std::string& value) {
  if (const Field* field = find_field(nearest_key(word))) return setting(*field, value);
  const Field* field = only_field_with(std::string(word));
  return field == nullptr ? "" : setting(*field, std::string(word));
}

std::string unknown_key(std::string_view key) {
  if (is_section(key)) return text("is a section; expected a key in it, written ", key, ".KEY");
  const std::string meant = nearest_key(key);
  return meant.empty() ? "unknown key; `normscope config` lists all"
                       : "unknown key; did you mean " + meant + "?";
}

}  // namespace normscope
