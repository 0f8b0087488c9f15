// What `compare` knows of runs: groups of seeds, what sets two groups apart, what can be concluded.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/metric.h"
#include "config/fields.h"
#include "run/record.h"

namespace normscope {

// The values of the keys that a config uses, less seed and bookkeeping: where they are equal, so are the
// losses of a seed. In the order of the field table.
using Keys = std::map<const Field*, nlohmann::ordered_json>;

// Runs that differ in nothing but their seed.
struct Group {
  Keys keys;
  std::vector<RunRecord> runs = {};           // one a seed
  std::string label = "";                     // unique, safe for a terminal
  nlohmann::ordered_json labelled_keys = {};  // the keys that the label tells, and their values

  const RunConfig& config() const { return runs[0].config; }
  std::size_t count(std::string_view status) const;
  // Of the runs that did not diverge, if there are any: the last loss of one that did means nothing in a
  // mean.
  Metric metric(std::optional<double> RunRecord::*member) const;
};

// In the order in which their first runs come. A seed that a group has already (from another build, of other
// weights) is no further seed of it: it starts a group of its own.
std::vector<Group> group_by_config(const std::vector<RunRecord>& runs);

// A key in which two configs differ.
struct KeyChange {
  const Field* field;
  std::string values;  // "6 -> 12"
  bool is_derived;     // it follows from others, such as the placement's final norm; else a cause of its own
};
std::vector<KeyChange> config_diff(const Group& a, const Group& b);

// Final validation losses minus the base's, seed by seed, as JSON: what a seed decides (first weights,
// batches) is the same on both sides and falls out of the difference. An entry for every group that can be
// compared with the base and shares two seeds with it.
nlohmann::ordered_json pairs_with_base(const std::vector<Group>& groups, const Group& base);

// {"text", "kind", "groups"}: one sentence each on all groups of which it is true. `pairs`: how many are
// paired with the base.
nlohmann::ordered_json remarks_on(const std::vector<Group>& groups, const Group& base, std::size_t pairs);

// Prints the table of runs, or folders of runs, their differences and remarks.
void print_comparison(const std::vector<std::string>& runs);

}  // namespace normscope
