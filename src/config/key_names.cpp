// What a user may call a key: in full, by its last part, by the name that other programs have for it, or
// misspelt.
#include <algorithm>

#include "config/fields.h"
#include "core/error.h"
#include "core/text.h"

namespace normscope {
namespace {

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

bool is_section(std::string_view key) {
  return std::ranges::any_of(fields(), [&](const Field& f) { return f.key.starts_with(text(key, '.')); });
}

std::string key_called(std::string_view word) {
  std::string plain(word);
  std::ranges::replace(plain, '-', '_');
  for (const Field& field : fields()) {
    if (plain == field.key || plain == last_part(field.key)) return field.key;
  }
  for (const Field& field : fields()) {
    if (std::ranges::count(field.other_names, last_part(plain))) return field.key;
  }
  return "";
}

namespace {

// The key or section that `key` most likely means; empty where nothing is near.
std::string nearest_key(std::string_view key) {
  if (const std::string called = key_called(key); !called.empty()) return called;
  std::vector<std::string> whole, last;  // last: what a key is called when its section is wrong or missing
  for (const Field& field : fields()) {
    whole.push_back(field.key.substr(0, field.key.find('.')));
    whole.push_back(field.key);
    last.emplace_back(last_part(field.key));
  }
  if (const std::string best = nearest(key, whole); !best.empty()) return best;
  const auto found = std::ranges::find(last, nearest(last_part(key), last));
  return found == last.end() ? "" : fields()[found - last.begin()].key;
}

}  // namespace

std::string unknown_key(std::string_view key) {
  if (is_section(key)) return text("is a section; expected a key in it, written ", key, ".KEY");
  const std::string meant = nearest_key(key);
  return meant.empty() ? "unknown key; `normscope config` lists all"
                       : "unknown key; did you mean " + meant + "?";
}

}  // namespace normscope
