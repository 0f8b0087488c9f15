// The parts of `compare`: groups of seeds, differences between groups, conclusions.
#pragma once

#include "cli/metric.h"
#include "config/fields.h"
#include "run/record.h"

namespace normscope {

// The values of the keys that a config uses, without seed and bookkeeping. Equal keys and an equal seed give
// equal losses.
using Keys = std::map<const Field*, nlohmann::ordered_json>;

// Runs that differ only in their seed.
struct Group {
  Keys keys;
  std::vector<RunRecord> runs = {};           // one a seed
  std::string label = "";                     // unique, safe for a terminal
  nlohmann::ordered_json labelled_keys = {};  // the keys in the label, and their values

  const RunConfig& config() const { return runs[0].config; }
  std::size_t count(std::string_view status) const;
  // Leaves out diverged runs, whose last loss would spoil a mean, unless all diverged.
  Metric metric(std::optional<double> RunRecord::*member) const;
};

// In the order of their first runs. A second run of the same config and seed (of another build, say) starts a
// group of its own.
std::vector<Group> group_by_config(const std::vector<RunRecord>& runs);

// A key in which two configs differ.
struct KeyChange {
  const Field* field;
  std::string values;  // "6 -> 12"
  bool is_derived;     // it follows from other keys, as the final norm does from the placement
};
std::vector<KeyChange> config_diff(const Group& a, const Group& b);

// Final validation losses minus the base's, seed by seed, as JSON: the effect of a seed (initial weights,
// batches) cancels in the difference. An entry for every group that can be compared with the base and shares
// at least two seeds with it.
nlohmann::ordered_json pairs_with_base(const std::vector<Group>& groups, const Group& base);

// {"text", "kind", "groups"}: one sentence for all groups of which it is true. `pairs`: the number of entries
// of pairs_with_base().
nlohmann::ordered_json remarks_on(const std::vector<Group>& groups, const Group& base, std::size_t pairs);

}  // namespace normscope
