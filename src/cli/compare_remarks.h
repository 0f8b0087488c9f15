// What can be said of groups of runs, and what cannot be concluded from them, as JSON.
#pragma once

#include "cli/compare_groups.h"

namespace normscope {

// Final validation losses minus the base's, seed by seed: what a seed decides (first weights, batches) is the
// same on both sides and falls out of the difference. An entry for every group that can be compared with the
// base and has two seeds done, as the base must.
nlohmann::ordered_json pairs_with_base(const Grouping& grouping, std::size_t base);

// {"text", "kind", "groups"}: one sentence each on all groups of which it is true.
nlohmann::ordered_json remarks_on(const Grouping& grouping, std::size_t base,
                                  const nlohmann::ordered_json& pairs);

}  // namespace normscope
