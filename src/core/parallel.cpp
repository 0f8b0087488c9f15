#include "core/parallel.h"

namespace normscope {
namespace {

int threads = 0;  // 0: not set yet

}  // namespace

void set_thread_count(int count) {
  // The processors that OpenMP may use: those of the affinity mask, also where it has bound this thread to
  // one.
  threads = count > 0 ? count : omp_get_num_procs();
  omp_set_dynamic(0);
  omp_set_num_threads(
      threads);  // an OpenMP build of OpenBLAS reads this: 1 thread must mean 1 thread there too
}

int thread_count() {
  if (threads == 0) set_thread_count(0);
  return threads;
}

}  // namespace normscope
