// A config as JSON, the JSON Schema, and the differences of two configs, all from the field table.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "config/run_config.h"

namespace normscope {

// Every key that has an effect, with its resolved value; dump() of what load_config() makes of it is the
// same. A required key without a value (see LoadOptions) is left out.
nlohmann::ordered_json dump(const RunConfig& config);

std::string dump_text(const RunConfig& config);

// JSON Schema (draft 7, which editors know best); kept at configs/schema.json.
nlohmann::ordered_json json_schema();

// The keys in which two configs differ and that resuming must keep, with their values: "model.n_layer
// (6 -> 12), train.lr (...)". A key that has an effect in one of them alone follows from another difference.
std::string fixed_differences(const RunConfig& a, const RunConfig& b);

}  // namespace normscope
