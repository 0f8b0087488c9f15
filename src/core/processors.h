// The processors that this program may use.
//
// An OpenMP library that is told to bind threads (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY) binds a
// thread to one processor, and every thread that this one starts inherits it: GNU's the main thread before
// main() begins, LLVM's any thread at its first call. So the affinity mask is taken before the libraries'
// initialisers, and given back.
#pragma once

#include <string>

namespace normscope {

// Gives the calling thread the program's affinity mask back: after the first call of an OpenMP library, or of
// one that calls it.
void unbind_thread();

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
