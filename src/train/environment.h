// The machine and the build, on which a run's bits and speed depend.
#pragma once

#include <string>

#include "config/run_config.h"
#include "kernels/gemm/gemm.h"
#include "run/record.h"

namespace normscope {

// The GEMM implementation of a run.
GemmProvider gemm_provider(const TrainConfig& config);
const char* name_of(GemmProvider provider);

constexpr Index max_threads = 1024;

// The thread count: the --threads option, else train.threads; if both are 0 the upper limit of the choice by
// trial, OMP_NUM_THREADS, else usable_cores().
int resolve_threads(Index option, Index config);

// "normscope 0.1.0 (commit 93fd48b6c1), GCC 12.2.0, avx512, OpenBLAS 0.3.21 (openmp, Cooperlake)"
std::string version_text();
std::string blas_text();      // "OpenBLAS 0.3.21 (openmp, Cooperlake)"
const char* commit_name();    // "93fd48b6c1", "-dirty" after it where files differed; "unknown"
std::string compiler_name();  // "GCC 12.2.0"
std::string cpu_name();       // "unknown" where the kernel does not say
std::string libc_name();      // "glibc 2.36": cosines and logarithms are the library's

// Sets what a record says of the machine and the build.
void add_environment(const TrainConfig& config, RunRecord& run);

}  // namespace normscope
