// What `compare` knows of runs: those of one config together, what they are called, what sets two apart.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/metric.h"
#include "config/fields.h"
#include "run/read.h"

namespace normscope {

// The values of the keys that a config uses, less seed and bookkeeping: where they are equal, so are the
// losses of a seed. Of the places of one text, one stands for all.
using Keys = std::map<const Field*, nlohmann::ordered_json>;  // in the order of the field table

// Runs whose configs differ in nothing but the seed, each with another one.
struct Group {
  std::vector<RunRecord> runs;
  Keys keys;
  std::string folder;  // around the runs of several seeds; that of a single run
  std::string label;   // the values that set it apart from the others: unique, safe for a terminal

  const RunConfig& config() const { return runs[0].config; }
  bool is_probe() const { return runs[0].status == "probe"; }
  std::vector<const RunRecord*> with_status(std::string_view status) const;
  // Of the runs that did not diverge, if there are such: the last loss of one that did says nothing in a
  // mean.
  Metric metric(std::optional<double> RunRecord::*member) const;
};

struct Grouping {
  std::vector<Group> groups;           // in the order in which their first runs come
  std::vector<const Field*> apart;     // the keys that the labels tell
  bool apart_in_more = false;          // there are more keys in which they differ: "pre · lr 0.01 · …"
  std::set<std::string> unread_texts;  // paths, as JSON, whose files cannot be compared because they are gone
};
Grouping group_by_config(const std::vector<RunRecord>& runs);

// A key in which two configs differ, and "6 -> 12".
struct KeyChange {
  const Field* field;
  std::string values;
};
struct ConfigDiff {
  std::vector<KeyChange> independent;  // each a cause of its own
  std::vector<KeyChange> derived;      // what these bring along, such as the placement's final norm
};
ConfigDiff config_diff(const Group& a, const Group& b);

}  // namespace normscope
