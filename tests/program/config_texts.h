// What tests of configs share: configs of --set options and a JSON text, and the messages that refuse them.
#pragma once

#include "config/dump.h"
#include "config/fields.h"
#include "config/load.h"
#include "core/text.h"
#include "messages.h"

namespace normscope::testing {

// --set options: a list, or a text in which blanks separate them.
struct Sets : std::vector<std::string> {
  Sets(const std::string& words) : vector(split(words, ' ')) { std::erase(*this, ""); }
  Sets(const char* words) : Sets(std::string(words)) {}
  Sets(std::vector<std::string> list) : vector(std::move(list)) {}
};

// The config of a file a.json with this text, without its data.
inline Loaded load(const Sets& sets, const std::string& text = "{}") {
  return load_config_text(text, "a.json", sets, {.need_data = false});
}
inline RunConfig config_of(const Sets& sets, const std::string& text = "{}") {
  return load(sets, text).config;
}

// The message that refuses it, or "no error".
inline std::string refusal(const Sets& sets, const std::string& text = "{}") {
  return message([&] { load(sets, text); });
}

struct Refused {
  Sets sets;
  std::string part;  // of the message
};
inline void check_refused(const std::vector<Refused>& rows) {
  for (const auto& [sets, part] : rows) CHECK_HOLDS(refusal(sets), part);
}

inline std::string keys_that_differ(const RunConfig& a, const RunConfig& b) {
  std::string keys;
  for (const Field& field : fields()) keys += field.get(a) != field.get(b) ? field.key + " " : "";
  return keys;
}
inline bool same(const RunConfig& a, const RunConfig& b) {
  return dump(a) == dump(b) && keys_that_differ(a, b).empty();
}

}  // namespace normscope::testing
