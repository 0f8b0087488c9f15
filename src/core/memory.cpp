#include "core/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/control_groups.h"

namespace normscope {

double peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;  // Linux counts in KiB
}

double available_memory_bytes(const std::string& root) {
  double available = 0x1p60;  // if the system does not say
  std::ifstream meminfo(root + "/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with("MemAvailable:")) available = std::strtod(line.c_str() + 13, nullptr) * 1024;
  }
  for (const std::string& folder : control_groups("memory", root)) {
    std::ifstream limit(folder + "/memory.max"), used(folder + "/memory.current");
    double limit_bytes = 0, used_bytes = 0, bytes = 0;  // without a limit memory.max holds the word "max"
    if (!(limit >> limit_bytes && used >> used_bytes)) continue;
    std::ifstream statistics(folder + "/memory.stat");
    for (std::string key; statistics >> key >> bytes;) {  // cached files count as used until memory is short
      if (key == "inactive_file" || key == "active_file") used_bytes -= bytes;
    }
    available = std::min(available, limit_bytes - used_bytes);
  }
  return available;
}

}  // namespace normscope
