// The one table of everything a config can say: a row a key. Parsing, checking, dumping, `normscope config`
// and the JSON Schema all follow from it; a new key is a member of RunConfig and a row in fields.cpp.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/run_config.h"

namespace normscope {

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

  Field&& by_default(std::string words, void (*apply)(RunConfig&)) && {
    default_words = std::move(words);
    apply_default = apply;
    return std::move(*this);
  }
  Field&& needed() && { return required = true, std::move(*this); }
  Field&& changeable() && { return may_change_on_resume = true, std::move(*this); }
};

// All rows, in the order in which they are listed and dumped.
const std::vector<Field>& fields();

// The row of a dotted key; null if there is none.
const Field* find_field(std::string_view key);

// Whether `key` is an object that holds keys: "model", "model.init".
bool is_section(std::string_view key);

// The key or section that `key` most likely means; empty where nothing is near.
std::string nearest_key(std::string_view key);

// The key that `word` is, without its section or in the words of another program (learning_rate); else empty.
std::string key_called(std::string_view word);

// "required", "4*d_model", "0.1": the default as a person reads it.
std::string default_text(const Field& field);

}  // namespace normscope
