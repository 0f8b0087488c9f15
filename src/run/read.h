// Finds and reads runs, for comparisons and sweeps.
#pragma once

#include <string>
#include <vector>

#include "run/record.h"

namespace normscope {

// The record of a run from its folder. If the logs go beyond the summary, the run is going on or was killed:
// its status is "unfinished" and its figures are those of the logs. Errors: the folder is no run (usage), its
// config or summary is damaged.
RunRecord read_run(const std::string& folder);

// The run folders of an argument: the folder itself, or the runs in it, in the order of a sweep's
// summary.csv, then by name, L=2 before L=12.
std::vector<std::string> run_folders(const std::string& argument);

}  // namespace normscope
