// The table of config keys, a row each. Parsing, checking, dumping, `normscope config`, the JSON Schema and
// hints follow from it; a new key is a member of RunConfig and a row in fields.cpp.
#pragma once

#include <functional>
#include <string_view>

#include "config/run_config.h"
#include "io/json.h"

namespace normscope {

// The meaning of a difference in a key.
enum class KeyRole {
  fixed,           // another run: resuming must keep the value of the folder's config
  free_on_resume,  // another run, but resuming may change the value
  text,            // paths of a text, which is known by its hash; free on resume
  bookkeeping      // no weight and no loss depends on it; free on resume
};

// A default that depends on earlier rows.
struct DerivedDefault {
  std::string words = {};               // "4*d_model"; empty: the default is RunConfig's initialiser
  void (*apply)(RunConfig&) = nullptr;  // null: the loader computes it
};

// The condition under which a key has an effect.
struct Effect {
  bool (*holds)(const RunConfig&) = nullptr;  // null: always
  std::string idle_words = {};                // why the key has none elsewhere
  Json idle_value = {};                       // what it then resolves to; null: the given value
};

// The parts of a row beyond key, member, type and doc.
struct FieldTraits {
  DerivedDefault default_to = {};
  bool required = false;     // there is no default
  bool takes_auto = false;   // "auto" means the default
  std::string follows = {};  // a key; where that is overridden later than this one, the default applies again
  KeyRole role = KeyRole::fixed;
  Effect used_if = {};
  std::string label = {};  // of a value in a table or a legend: "L {}"; default: "d_ff {}", the key's leaf
  std::vector<std::string_view> other_names = {};  // in nanoGPT, PyTorch's examples, Hugging Face, Lightning
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

  bool is_used(const RunConfig& config) const { return used_if.holds == nullptr || used_if.holds(config); }
};

// All rows, in the order in which they are listed and dumped.
const std::vector<Field>& fields();

// Sets keys without effect to the value that they resolve to.
void settle(RunConfig& config);

// The row of a dotted key; null if there is none.
const Field* find_field(std::string_view key);

// Whether `key` is an object that holds keys: "model", "model.init".
bool is_section(std::string_view key);

// What is wrong with a key that is in no row: "unknown key; did you mean model.norm?"
std::string unknown_key(std::string_view key);

// The key that a word means: in full, by its last part, by another program's name (learning_rate), or
// misspelt. Empty: no key is near.
std::string nearest_key(std::string_view word);

// The default in words: "required", "4*d_model", "0.1".
std::string default_text(const Field& field);

}  // namespace normscope
