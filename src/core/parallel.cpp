#include "core/parallel.h"

#include <cmath>
#include <fstream>

namespace normscope {
namespace {

const int openmp_threads = omp_get_max_threads();  // before any set_thread_count()

}  // namespace

int default_thread_count() {
  std::ifstream file(
      "/sys/fs/cgroup/cpu.max");  // microseconds and their period; without a limit "max 100000"
  double quota = 0, period = 0;
  if (!(file >> quota >> period)) return openmp_threads;
  return std::clamp(static_cast<int>(std::ceil(quota / period)), 1, openmp_threads);
}

}  // namespace normscope
