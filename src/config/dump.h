// A config as JSON, the JSON Schema, and the differences of two configs, all from the field table.
#pragma once

#include "config/run_config.h"
#include "io/json.h"

namespace normscope {

// The members of a dump that list the keys whose values are defaults that depend on other keys, and the keys
// that have no effect. Scripts read them; load_config() ignores the first, and the values of keys in the
// second.
constexpr const char* derived_keys = "$derived";
constexpr const char* idle_keys = "$idle";

// The member of a dump's `model` that lists the blocks' placements if norm_placement is a pattern's name.
// Scripts read it; load_config() ignores it.
constexpr const char* pattern_blocks = "$blocks";

// Every key with its resolved value, `derived_keys` and `idle_keys`; load_config() of it gives the same
// config. A required key without a value (see LoadOptions) is left out.
Json dump(const RunConfig& config);

std::string dump_text(const RunConfig& config);

// JSON Schema (draft 7, which editors know best); kept at configs/schema.json.
Json json_schema();

// The keys in which two configs differ and that resuming must keep, with their values: "model.n_layer
// (6 -> 12), train.lr (...)". A key that only one of them uses is left out:
// a difference in the list is the cause.
std::string fixed_differences(const RunConfig& a, const RunConfig& b);

}  // namespace normscope
