// The processors that this program may use.
//
// An OpenMP library that is told to bind threads (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY) binds the
// main thread to one processor before main() begins, and every thread that it starts inherits that one. So
// the affinity mask is taken before the libraries' initialisers and is given back to the main thread after
// them.
#pragma once

#include <string>

namespace normscope {

// Cores in the affinity mask, with hyper-threads of a core counted once, and no more than the CPU quota; at
// least 1.
int usable_cores();

// Threads of other programs that run or would like to, anywhere on the machine; a look of 2 ms, to be taken
// while this program has one thread awake.
int busy_threads_elsewhere();

// Cores that those leave to this program; at least 1.
int cores_left_by(int busy_threads);

// The CPU quota of the control groups, versions 1 and 2, that this process is in: processors, infinity
// without one. `root`: what to put before /proc and /sys.
double cpu_quota(const std::string& root = "");

}  // namespace normscope
