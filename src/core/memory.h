// The memory of the process and of the machine.
#pragma once

namespace normscope {

double peak_rss_bytes();  // the maximum of this process so far

// The memory that the machine has free, at most the container's limit (memory.max of its control group).
double available_memory_bytes();

}  // namespace normscope
