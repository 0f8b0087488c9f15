// The table of config keys, a row each. Parsing, checking, dumping, `normscope config`, the JSON Schema and
// hints follow from it; a new key is a member of RunConfig and a row in fields.cpp.
#pragma once

#include <functional>
#include <string_view>

#include "config/run_config.h"
#include "io/json.h"

namespace normscope {

struct Field {
  std::string key;      // dotted, as --set takes it
  std::string allowed;  // type and range in words: "integer, 1..1024", "relu | gelu | ..."
  std::string doc;      // one line
  Json schema;          // JSON Schema of the value

  // The value as a config writes it; set() of it restores the same bits.
  std::function<Json(const RunConfig&)> get;
  // Stores a value and returns "", or stores nothing and returns what is wrong with it.
  std::function<std::string(RunConfig&, const Json&)> set;

  // The default is RunConfig's initialiser, unless it depends on earlier rows: then `default_words` says how,
  // and `apply_default` computes it (null: the loader does).
  std::string default_words = {};
  void (*apply_default)(RunConfig&) = nullptr;
  bool required = false;     // there is no default
  bool takes_auto = false;   // "auto" means the default
  std::string follows = {};  // a key; where that is overridden later than this one, the default applies again
  bool names_text = false;   // paths of a text, which is known by its hash
  bool is_bookkeeping = false;  // no weight and no loss depends on it
  bool fixed_on_resume = true;  // a resumed run must have the value of its folder's config

  // Whether the key has an effect in a config (null: always); why it has none elsewhere, and the value that
  // it then resolves to (null: the given one).
  bool (*has_effect)(const RunConfig&) = nullptr;
  std::string idle_words = {};
  Json idle_value = {};

  std::string label = {};  // of a value in a table or a legend: "L {}"; default: "d_ff {}", the key's leaf
  std::vector<std::string_view> other_names = {};  // in nanoGPT, PyTorch's examples, Hugging Face, Lightning

  bool is_used(const RunConfig& config) const { return has_effect == nullptr || has_effect(config); }

  // The parts of a row beyond key, value, type and doc; each returns the row.
  Field& defaults_to(std::string words, void (*apply)(RunConfig&) = nullptr) {
    default_words = std::move(words);
    apply_default = apply;
    return *this;
  }
  Field& used_if(bool (*effect)(const RunConfig&), std::string idle, Json value = nullptr) {
    has_effect = effect;
    idle_words = std::move(idle);
    idle_value = std::move(value);
    return *this;
  }
  Field& following(std::string other) { return follows = std::move(other), *this; }
  Field& must_be_given() { return required = true, *this; }
  Field& free_on_resume() { return fixed_on_resume = false, *this; }
  Field& bookkeeping() { return is_bookkeeping = true, free_on_resume(); }
  Field& names_a_text() { return names_text = true, free_on_resume(); }
  Field& labelled(std::string pattern) { return label = std::move(pattern), *this; }
  Field& called(std::vector<std::string_view> names) { return other_names = std::move(names), *this; }
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
