// Resources of the process on this machine and in its container: processors, memory, time.
#pragma once

#include <chrono>

namespace normscope {

// The default number of threads: OpenMP's at the start of the program (OMP_NUM_THREADS, else the processors
// that the process may use), at most the container's CPU quota, rounded up.
int default_thread_count();

double peak_rss_bytes();  // the maximum of this process so far

// The memory that the machine has free, at most the container's limit (memory.max of its control group).
double available_memory_bytes();

// A clock that starts with its construction.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace normscope
