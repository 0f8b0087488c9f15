// The one table of everything a config can say: a row a key. Parsing, checking, dumping, `normscope config`
// and the JSON Schema all follow from it; a new key is a member of RunConfig and a row in fields.cpp.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/run_config.h"

namespace normscope {

// What other keys must be for one to matter, all of it together: each one of a list of values (of a key that
// holds a list, one of its entries), or {"not": [...]}: none of them, {"as": KEY}: what that key is,
// {"below": KEY}: less than that key, if it is set.
using Conditions = std::map<std::string, nlohmann::ordered_json>;

struct Field {
  std::string key;                // dotted, as --set takes it
  std::string allowed;            // type and range in words: "integer, 1..1024", "relu | gelu | ..."
  std::string doc;                // one line
  nlohmann::ordered_json schema;  // JSON Schema of the value

  // The value as a config writes it; what set() takes back to the same bits.
  std::function<nlohmann::ordered_json(const RunConfig&)> get;
  // Stores a value. Returns what is wrong with it, and then stores nothing; empty if nothing is.
  std::function<std::string(RunConfig&, const nlohmann::json&)> set;

  // The default is what RunConfig's initialiser says, unless it depends on other keys: then `default_words`
  // says how, and `apply_default` computes it once those are known (null: only the loader can). Rows come in
  // an order in which each depends on earlier rows alone.
  std::string default_words;
  void (*apply_default)(RunConfig&) = nullptr;
  bool required = false;              // there is no default
  bool takes_auto = false;            // "auto" asks for the default
  bool may_change_on_resume = false;  // a resumed run may differ from its folder's config here

  // What a difference in this key means. Where a config has no use for the key, any two values give the same
  // bits; so do two of a bookkeeping key in every config.
  std::vector<Conditions> uses;       // any of them; none: every config uses it
  std::string unused_words;           // why a config has no use for it: "only ... has it"
  nlohmann::ordered_json else_value;  // what it then resolves to; null: what was written
  bool is_bookkeeping = false;        // names and paces of the work: no weight and no loss depends on it
  bool names_text = false;            // paths: their characters count, not where they lie
  std::string label;  // a value in a table or a legend: "L {}"; default: "d_ff {}", its last part
  std::vector<std::string_view> other_names;       // in nanoGPT, PyTorch's examples, Hugging Face, Lightning
  std::vector<std::string_view> other_quantities;  // what they give instead: epochs for steps

  bool used_in(const RunConfig& config) const;

  Field& by_default(std::string words, void (*apply)(RunConfig&)) {
    default_words = std::move(words);
    apply_default = apply;
    return *this;
  }
  Field& needed() { return required = true, *this; }
  Field& or_auto() { return takes_auto = true, *this; }
  Field& changeable() { return may_change_on_resume = true, *this; }
  Field& bookkeeping() { return is_bookkeeping = may_change_on_resume = true, *this; }
  Field& text_file() { return names_text = true, *this; }
  Field& called(std::string words) { return label = std::move(words), *this; }
  Field& also(std::vector<std::string_view> names) { return other_names = std::move(names), *this; }
  Field& measured_otherwise(std::vector<std::string_view> names) {
    return other_quantities = std::move(names), *this;
  }
  Field& used_when(Conditions conditions, std::string otherwise) {
    unused_words = std::move(otherwise);
    return or_when(std::move(conditions));
  }
  Field& or_when(Conditions conditions) { return uses.push_back(std::move(conditions)), *this; }
  Field& else_is(nlohmann::ordered_json value) { return else_value = std::move(value), *this; }
};

// All rows, in the order in which they are listed and dumped.
const std::vector<Field>& fields();

// Gives keys that a config has no use for their `else_value`; returns those that changed.
std::vector<const Field*> reset_unused(RunConfig& config);

// The row of a dotted key; null if there is none.
const Field* find_field(std::string_view key);

// Whether `key` is an object that holds keys: "model", "model.init".
bool is_section(std::string_view key);

// What is wrong with a key that is in no row: "unknown key; did you mean model.norm?"
std::string unknown_key(std::string_view key);

// "--set train.lr=0.1?": the question whether that was meant by a key's name, without its section or in the
// words of another program (learning_rate), and a value. Empty: the name is none.
std::string setting_called(std::string_view name, const std::string& value);

// The same of a misspelt name, or of a value that only one key takes (bf16). Empty: nothing is near.
std::string setting_meant(std::string_view word, const std::string& value);

// "required", "4*d_model", "0.1": the default as a person reads it.
std::string default_text(const Field& field);

}  // namespace normscope
