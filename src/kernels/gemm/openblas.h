// OpenBLAS, behind the seam of gemm().
#pragma once

#include <string>

#include "kernels/gemm/gemm.h"

namespace normscope {

// The product without its epilogue, by the calling thread; see pin_openblas().
void openblas_gemm(const Gemm<float>& product);
void openblas_gemm(const Gemm<double>& product);

// Whether the buffers that OpenBLAS maps for so many threads, 128 MiB each, fit under a limit on address
// space (ulimit -v). Makes system calls only.
bool openblas_buffers_fit(int threads);

// Keeps OpenBLAS from starting threads of its own under our loops. Call once, after set_thread_count().
// Error: its buffers do not fit.
void pin_openblas();

// The loaded library's threading ("openmp", "pthreads", "serial"), version, and kernel for this processor.
struct BlasInfo {
  std::string flavour, version, kernel;
};
BlasInfo blas_info();

}  // namespace normscope
