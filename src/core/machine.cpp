#include "core/machine.h"

#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

namespace normscope {
namespace {

const int openmp_threads = omp_get_max_threads();  // before any set_thread_count()

}  // namespace

int default_thread_count() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // "QUOTA PERIOD" in us; "max 100000": no limit
  double quota = 0, period = 0;
  if (!(file >> quota >> period)) return openmp_threads;
  return std::clamp(static_cast<int>(std::ceil(quota / period)), 1, openmp_threads);
}

double peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;  // Linux counts in KiB
}

double available_memory_bytes() {
  double available = 0x1p60;  // no limit where the kernel gives no such line
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with("MemAvailable:")) available = std::strtod(line.c_str() + 13, nullptr) * 1024;
  }
  double limit = 0;
  std::ifstream file("/sys/fs/cgroup/memory.max");  // bytes, or the word "max"
  return file >> limit ? std::min(available, limit) : available;
}

}  // namespace normscope
