// The table of config keys, a row each. Parsing, checking, dumping, `normscope config` and the JSON Schema
// follow from it; a new key is a member of RunConfig and a row in fields.cpp.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/run_config.h"

namespace normscope {

// Values of other keys that must all hold for a key to have an effect: a list of values, of which the key
// (or an entry of its list) is one; {"not": [...]}: it is none of them; {"below": KEY}: it is less than that
// key, if that key is set.
using Conditions = std::map<std::string, nlohmann::ordered_json>;

// What a key is beyond its type.
struct FieldTraits {
  // The default is RunConfig's initialiser, unless it depends on other keys: then `default_words` says how,
  // and `apply_default` computes it once those are known (null: the loader does). A row depends on earlier
  // rows only.
  std::string default_words = {};
  void (*apply_default)(RunConfig&) = nullptr;
  bool required = false;              // there is no default
  bool takes_auto = false;            // "auto" means the default
  bool may_change_on_resume = false;  // a resumed run may differ from its folder's config here

  // Two values of a key give the same bits in a config that does not use the key, and always if the key is
  // bookkeeping.
  std::vector<Conditions> uses = {};       // a config uses the key if any of them holds; empty: always
  std::string unused_words = {};           // why a config does not use it: "only ... has it"
  nlohmann::ordered_json else_value = {};  // what an unused key resolves to; null: the written value
  bool is_bookkeeping = false;             // no weight and no loss depends on it; it may change on resume
  bool names_text = false;                 // paths: the text matters, not its place
  std::string label = {};  // of a value in a table or a legend: "L {}"; default: "d_ff {}", its last part
  std::vector<std::string_view> other_names = {};  // in nanoGPT, PyTorch's examples, Hugging Face, Lightning
  std::vector<std::string_view> other_quantities = {};  // what they have instead: epochs for steps
};

struct Field : FieldTraits {
  std::string key;                // dotted, as --set takes it
  std::string allowed;            // type and range in words: "integer, 1..1024", "relu | gelu | ..."
  std::string doc;                // one line
  nlohmann::ordered_json schema;  // JSON Schema of the value

  // The value as a config writes it; set() of it restores the same bits.
  std::function<nlohmann::ordered_json(const RunConfig&)> get;
  // Stores a value and returns "", or stores nothing and returns what is wrong with it.
  std::function<std::string(RunConfig&, const nlohmann::json&)> set;

  bool used_in(const RunConfig& config) const;
};

// All rows, in the order in which they are listed and dumped.
const std::vector<Field>& fields();

// Sets keys that a config does not use to their `else_value`; returns those that changed.
std::vector<const Field*> reset_unused(RunConfig& config);

// The row of a dotted key; null if there is none.
const Field* find_field(std::string_view key);

// Whether `key` is an object that holds keys: "model", "model.init".
bool is_section(std::string_view key);

// What is wrong with a key that is in no row: "unknown key; did you mean model.norm?"
std::string unknown_key(std::string_view key);

// "--set train.lr=0.1?" for a key's name, with or without its section or from another program
// (learning_rate), and a value. Empty: no key has that name.
std::string setting_called(std::string_view name, const std::string& value);

// The same for a misspelt name, or for a value that only one key accepts (bf16). Empty: nothing is near.
std::string setting_meant(std::string_view word, const std::string& value);

// The default in words: "required", "4*d_model", "0.1".
std::string default_text(const Field& field);

}  // namespace normscope
