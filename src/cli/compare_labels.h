// How `compare` names groups: after their folders, without the seeds; shorter where a table needs it.
#pragma once

#include <string>
#include <vector>

#include "cli/compare_groups.h"

namespace normscope {

// Gives every group its label: "pre" of the one run runs/pre, "pre x3 seeds" of runs/pre_seed=1 and its like.
void set_labels(std::vector<Group>& groups);

// The labels for a table: printable, without the key=value parts of a sweep's names that all groups share,
// and cut where they are still too long. Unique as the groups' own are. `shared` receives the parts left out.
std::vector<std::string> table_labels(const std::vector<Group>& groups, std::vector<std::string>& shared);

// The same without " x3 seeds", for sentences, unless that makes two of them equal.
std::vector<std::string> remark_labels(const std::vector<Group>& groups,
                                       const std::vector<std::string>& table);

// What a terminal shows of UTF-8 text: characters, not bytes.
std::size_t shown_width(const std::string& text);

}  // namespace normscope
