#include "core/parallel.h"

#include <sched.h>

namespace normscope {
namespace {

int cores_in_affinity_mask() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1, omp_get_num_procs());
}

int threads = 0;  // 0: not set yet

}  // namespace

void set_thread_count(int count) {
  threads = count > 0 ? count : cores_in_affinity_mask();
  omp_set_dynamic(0);
  omp_set_num_threads(
      threads);  // an OpenMP build of OpenBLAS reads this: 1 thread must mean 1 thread there too
}

int thread_count() {
  if (threads == 0) set_thread_count(0);
  return threads;
}

}  // namespace normscope
