// A config as JSON, the JSON Schema, and the differences of two configs, all from the field table.
#pragma once

#include "config/run_config.h"
#include "io/json.h"

namespace normscope {

// The member of a dump that lists the keys whose values are defaults that depend on other keys. Scripts read
// it; load_config() ignores it.
constexpr const char* derived_keys = "$derived";

// Every key that has an effect with its resolved value, and `derived_keys`; load_config() of it gives the
// same config. A required key without a value (see LoadOptions) is left out.
Json dump(const RunConfig& config);

std::string dump_text(const RunConfig& config);

// JSON Schema (draft 7, which editors know best); kept at configs/schema.json.
Json json_schema();

// The keys in which two configs differ and that resuming must keep, with their values: "model.n_layer
// (6 -> 12), train.lr (...)". A key that only one of them uses is left out:
// a difference in the list is the cause.
std::string fixed_differences(const RunConfig& a, const RunConfig& b);

}  // namespace normscope
