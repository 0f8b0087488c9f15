// The table of config keys, a row each. Parsing, checking, dumping, `normscope config`, the JSON Schema and
// hints follow from it; a new key is a member of RunConfig and a row in fields.cpp.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>

#include "config/run_config.h"
#include "core/text.h"
#include "io/json.h"

namespace normscope {

// --- types of values: their words, their JSON Schema and their reader ---

template <class T>
struct ValueType {
  std::string allowed;
  Json schema;
  std::function<std::optional<T>(const Json&)> read;  // nullopt: the value is not allowed
  std::vector<std::string> names = {};                // the allowed names, for "did you mean"
};

enum class High { closed, open };  // closed: the upper limit itself is allowed

ValueType<Index> integer(Index low, Index high);
ValueType<double> number(double low, double high, High end = High::closed);
ValueType<bool> boolean();
ValueType<bool> boolean_or_auto();  // the loader handles "auto"
ValueType<std::vector<std::string>> paths();
ValueType<std::string> optional_path();
ValueType<std::string> run_name();
ValueType<DepthFactor> depth_factor();                // 0.5, or "L^-0.5"
ValueType<std::vector<BlockPlacement>> placements();  // one for all blocks, or a list with one for each

template <class Enum>
ValueType<Enum> one_of() {
  const Names known = enum_names(Enum{});
  const std::vector<std::string> names(known.begin(), known.end());
  const auto read = [=](const Json& given) -> std::optional<Enum> {
    const auto found = std::ranges::find_if(names, [&](const std::string& name) { return given == name; });
    return found == names.end() ? std::nullopt : std::optional(static_cast<Enum>(found - names.begin()));
  };
  return {join(names, " | "), {{"enum", names}}, read, names};
}

// "got ...; expected ...", and for a misspelt name "; did you mean ...?".
std::string type_error(const Json& got, const std::string& expected,
                       const std::vector<std::string>& names = {});

// A list of one entry is written as that entry.
inline Json as_list(const Json& value) { return value.is_array() ? value : Json::array({value}); }
inline Json as_entry(const Json& list) { return list.size() == 1 ? list[0] : list; }

// Values as a config writes them, an enum by name.
Json written(const DepthFactor& factor);
inline Json written(const std::vector<std::string>& list) { return as_entry(list); }
Json written(const BlockPlacement& block);
Json written(const std::vector<BlockPlacement>& blocks);
template <class T>
Json written(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return name_of(value);
  else
    return value;
}

// --- a row ---

// The meaning of a difference in a key.
enum class KeyRole {
  fixed,           // configs that differ here are different runs; a resume must keep the value
  free_on_resume,  // different runs too, but a resume may change the value
  text,            // paths of a text, which is known by its hash; free on resume
  bookkeeping      // no weight and no loss depends on it; free on resume
};

// A default that depends on other keys, whose rows stand above in the table.
struct DerivedDefault {
  std::string words = {};               // "4*d_model"; empty: the default is RunConfig's initialiser
  void (*apply)(RunConfig&) = nullptr;  // null: RunConfig's initialiser; `name` is the loader's
};

// A condition without which a key has no effect.
struct Condition {
  bool (*holds)(const RunConfig&);
  std::string reason;  // why the key has no effect if the condition does not hold
};

// A condition of a row, and the value that the key takes if the condition fails (null: the key's default).
struct Need {
  Condition condition;
  Json idle_value = {};
};

// The parts of a row beyond key, member, type and doc.
struct FieldTraits {
  DerivedDefault default_to = {};
  bool required = false;    // there is no default
  bool takes_auto = false;  // "auto" means the default
  // The name of another key. If a later file or --set gives that key and not this one, this key returns to
  // its default.
  std::string follows = {};
  KeyRole role = KeyRole::fixed;
  std::vector<Need> needs = {};  // the key has an effect where all of them hold
  // The words for a value in a table or a legend: "L {}"; by default the key's last part: "d_ff {}".
  std::string label = {};
  std::vector<std::string_view> other_names = {};  // in nanoGPT, PyTorch's examples and Hugging Face
};

struct Field : FieldTraits {
  std::string key;      // dotted, as --set takes it
  std::string doc;      // one line
  std::string allowed;  // type and range in words: "integer, 1..1024", "relu | gelu | ..."
  Json schema;          // JSON Schema of the value

  // The value as a config writes it; set() of it restores the same bits.
  std::function<Json(const RunConfig&)> get;
  // Stores a value and returns "", or stores nothing and returns what is wrong with it.
  std::function<std::string(RunConfig&, const Json&)> set;

  // The first need that does not hold; null: the key has an effect.
  const Need* unmet_need(const RunConfig& config) const {
    const auto unmet = std::ranges::find_if(needs, [&](const Need& n) { return !n.condition.holds(config); });
    return unmet == needs.end() ? nullptr : &*unmet;
  }
  bool is_used(const RunConfig& config) const { return unmet_need(config) == nullptr; }

  // Gives the key its default, which may depend on keys of rows above.
  void set_default(RunConfig& config) const {
    if (default_to.apply)
      default_to.apply(config);
    else
      set(config, get(RunConfig{}));
  }
};

// A row of the table; `value(config)` is a reference to the member of a RunConfig, const or not.
template <class At, class T>
Field row(std::string key, At value, const ValueType<T>& type, std::string doc, FieldTraits traits = {}) {
  const auto get = [=](const RunConfig& config) { return written(value(config)); };
  const auto set = [=](RunConfig& config, const Json& given) -> std::string {
    std::optional<T> read = type.read(given);
    if (!read) return type_error(given, type.allowed, type.names);
    value(config) = *std::move(read);
    return {};
  };
  return {std::move(traits), std::move(key), std::move(doc), type.allowed, type.schema, get, set};
}

// --- the table ---

// All rows, in the order in which they are listed and dumped.
const std::vector<Field>& fields();

// The rows of the placements that the config's list names, each once.
std::set<const Placement*> named_placements(const ModelConfig& config);

// True if the learning rate falls to min_lr after the warm-up.
bool rate_falls(const RunConfig& config);

// The row of a dotted key; null if there is none.
const Field* find_field(std::string_view key);

// The key that a word means: the whole key, its last part, another program's name (learning_rate), or a
// misspelling. Empty: no key is near.
std::string nearest_key(std::string_view word);

}  // namespace normscope
