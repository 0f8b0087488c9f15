// The memory of the process and of the machine.
#pragma once

#include <string>

namespace normscope {

double peak_rss_bytes();  // the maximum of this process so far

// Free on the machine, or in the process's control groups if that is less. `root` is prefixed to /proc and
// /sys.
double available_memory_bytes(const std::string& root = "");

}  // namespace normscope
