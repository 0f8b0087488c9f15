#include "core/machine.h"

#include <cblas.h>
#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace normscope {
namespace {

const int openmp_threads = omp_get_max_threads();  // before any set_thread_count()

// The number that a file begins with; infinite if there is none: no such file, "max", or -1, version 1's
// "max".
double limit_in(std::ifstream file) {
  double number = -1;
  return file >> number && number >= 0 ? number : std::numeric_limits<double>::infinity();
}

// The limits of one group; files that a version lacks set none.
GroupLimits limits_of(const std::filesystem::path& group) {
  double quota = 0, period = 1;  // microseconds
  std::ifstream cpu_max(group / "cpu.max");
  if (!(cpu_max >> quota >> period)) {
    quota = limit_in(std::ifstream(group / "cpu.cfs_quota_us"));
    period = limit_in(std::ifstream(group / "cpu.cfs_period_us"));
  }
  const double processors = std::isfinite(quota) ? quota / period : quota;
  return {processors, std::min(limit_in(std::ifstream(group / "memory.max")),
                               limit_in(std::ifstream(group / "memory.limit_in_bytes")))};
}

}  // namespace

GroupLimits group_limits(const std::string& root) {
  GroupLimits least;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;  // "ID:CONTROLLERS:/PATH"; version 2 names no controller
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::filesystem::path mount = root + "/sys/fs/cgroup/" + line.substr(first + 1, second - first - 1);
    // In a container the path may be that of the host: groups that do not exist here set no limit.
    for (std::filesystem::path group = line.substr(second + 1);; group = group.parent_path()) {
      const GroupLimits limits = limits_of(mount / group.relative_path());
      least.processors = std::min(least.processors, limits.processors);
      least.memory_bytes = std::min(least.memory_bytes, limits.memory_bytes);
      if (!group.has_relative_path()) break;
    }
  }
  return least;
}

int default_thread_count() {
  const double processors = std::ceil(group_limits().processors);
  return static_cast<int>(std::clamp<double>(processors, 1, openmp_threads));
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
  return std::min(available, group_limits().memory_bytes);
}

BlasInfo blas_info() {
  BlasInfo info;
  const int flavour = openblas_get_parallel();
  info.flavour = flavour == OPENBLAS_OPENMP ? "openmp" : flavour == OPENBLAS_THREAD ? "pthreads" : "serial";
  std::istringstream words(openblas_get_config());  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  for (std::string word; words >> word;) {
    if (word.find('.') != std::string::npos) {
      info.version = word;
      break;
    }
  }
  info.kernel = openblas_get_corename();
  return info;
}

}  // namespace normscope
