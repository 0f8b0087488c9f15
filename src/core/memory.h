// The memory of the process and of the machine.
#pragma once

namespace normscope {

double peak_rss_bytes();          // the maximum of this process so far
double available_memory_bytes();  // free on the machine, or in the container if that is less

}  // namespace normscope
