// A config as text: resolved values, their origins, the list of all keys, the JSON Schema. All from the field
// table.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace normscope {

// Every key with its resolved value; load_config() of it gives the same RunConfig. A required key without a
// value (see LoadOptions) is left out.
nlohmann::ordered_json dump(const RunConfig& config);

// The same as a file holds it: a key a line, lists on one line, a newline at the end.
std::string dump_text(const RunConfig& config);

// dump_text() with a comment after each value that says where it came from. It can be loaded again.
std::string dump_with_origin(const RunConfig& config, const std::map<std::string, std::string>& origins);

// A table of every key: what it takes, its default, what it means.
std::string describe_keys();

// JSON Schema (draft 7, which editors know best); kept at configs/schema.json.
nlohmann::ordered_json json_schema();
std::string json_schema_text();

// A key in which two configs differ.
struct Difference {
  std::string key;
  std::string values;  // "6 -> 12", a's and b's
  bool may_change_on_resume;
};
std::vector<Difference> keys_that_differ(const RunConfig& a, const RunConfig& b);

// The keys of them that may not change on resume, in words: "model.n_layer (6 -> 12), train.lr (...)".
std::string fixed_differences(const RunConfig& a, const RunConfig& b);

}  // namespace normscope
