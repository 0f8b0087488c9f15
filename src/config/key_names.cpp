// Finds the key that a user means, and says what its default is.
#include <algorithm>

#include "config/fields.h"
#include "core/error.h"
#include "core/text.h"

namespace normscope {

const Field* find_field(std::string_view key) {
  const auto found = std::ranges::find(fields(), key, &Field::key);
  return found == fields().end() ? nullptr : &*found;
}

bool is_section(std::string_view key) {
  return std::ranges::any_of(fields(), [&](const Field& f) { return f.key.starts_with(text(key, '.')); });
}

std::string nearest_key(std::string_view word) {
  std::string plain(word);
  std::ranges::replace(plain, '-', '_');
  const std::string leaf(leaf_name(plain));
  for (const Field& field : fields()) {
    if (plain == field.key || leaf == leaf_name(field.key)) return field.key;
  }
  for (const Field& field : fields()) {
    if (std::ranges::count(field.other_names, leaf)) return field.key;
  }
  std::vector<std::string> whole = {"model", "model.init", "data", "train"}, leaves;
  for (const Field& field : fields()) {
    whole.push_back(field.key);
    leaves.emplace_back(leaf_name(field.key));  // the section may be wrong or missing
  }
  if (const std::string key = nearest(plain, whole); !key.empty()) return key;
  const auto found = std::ranges::find(leaves, nearest(leaf, leaves));
  return found == leaves.end() ? "" : fields()[found - leaves.begin()].key;
}

std::string unknown_key(std::string_view key) {
  if (is_section(key)) return text("is a section; expected a key in it, written ", key, ".KEY");
  const std::string meant = nearest_key(key);
  return meant.empty() ? "unknown key; `normscope config` lists all"
                       : "unknown key; did you mean " + meant + "?";
}

std::string default_text(const Field& field) {
  if (field.required) return "required";
  if (!field.default_words.empty()) return field.default_words;
  const Json value = field.get(RunConfig{});
  if (value.is_number_float()) return text(value.get<double>());  // 0, where JSON writes 0.0
  return value.is_string() && value != "" ? value.get<std::string>() : value.dump();
}

}  // namespace normscope
