// The processors that this program may use.
//
// An OpenMP library that binds threads (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY) binds a thread to one
// processor, which every thread started from it inherits: GNU's library binds the main thread before main(),
// LLVM's any thread at its first call. So the affinity mask is saved before the initialisers of libraries
// run, and restored.
#pragma once

#include <string>

namespace normscope {

// Restores the program's affinity mask in the calling thread. Call it after the first call of an OpenMP
// library, or of a library that uses one.
void unbind_thread();

// Cores in the affinity mask, with hyper-threads of a core counted once, and no more than the CPU quota,
// rounded up; at least 1.
int usable_cores();

// Running or runnable threads of other programs on the machine. Takes 2 ms; call it while this program runs
// one thread.
int busy_threads_elsewhere();

// The cores that so many busy threads leave to this program; at least 1.
int cores_left_by(int busy_threads);

// The CPU quota, in processors, of this process's control groups, versions 1 and 2; infinity without one.
// `root` is prefixed to /proc and /sys.
double cpu_quota(const std::string& root = "");

}  // namespace normscope
