// Resources of the process on this machine and in its container: processors, memory, time, the BLAS library.
#pragma once

#include <chrono>
#include <limits>
#include <string>

namespace normscope {

// The limits of the process's control group and of all groups above it: the least of each, infinite without
// one.
struct GroupLimits {
  double processors = std::numeric_limits<double>::infinity();  // CPU time over time
  double memory_bytes = std::numeric_limits<double>::infinity();
};

// Reads /proc/self/cgroup and the files of its groups, of version 1 and 2, below `root` (in tests another
// folder).
GroupLimits group_limits(const std::string& root = "");

// The default number of threads: OpenMP's at the start of the program (OMP_NUM_THREADS, else the processors
// that the process may use), at most the CPU quota of its control groups, rounded up.
int default_thread_count();

double peak_rss_bytes();  // the maximum of this process so far

// The memory that the machine has free, at most the limit of the process's control groups.
double available_memory_bytes();

// OpenBLAS as it is loaded: its threading ("openmp", "pthreads", "serial"), its version, and the processor
// for which its kernels are made.
struct BlasInfo {
  std::string flavour, version, kernel;
};
BlasInfo blas_info();

// A clock that starts with its construction.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace normscope
