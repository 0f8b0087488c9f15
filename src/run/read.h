// Runs found and read, for comparisons and sweeps.
#pragma once

#include <string>
#include <vector>

#include "run/record.h"

namespace normscope {

// What the files of a run's folder tell. Where no summary tells of the last rows the run goes on, or was
// killed: its status is then "unfinished", and its figures are those of its logs so far. Errors: the folder
// is no run (usage), its config or summary is damaged.
RunRecord read_run(const std::string& folder);

// The run folders that an argument names: the folder itself, or the runs in it, in the order of its
// summary.csv, which is the sweep's; others follow by name, L=2 before L=12.
std::vector<std::string> run_folders(const std::string& argument);

}  // namespace normscope
