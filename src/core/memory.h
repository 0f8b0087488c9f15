// Memory of the process and of the machine.
#pragma once

namespace normscope {

double peak_rss_bytes();          // the most this process has held so far
double available_memory_bytes();  // free on the machine, or in the container it is

}  // namespace normscope
