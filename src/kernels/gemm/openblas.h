// OpenBLAS, behind the seam of gemm().
#pragma once

#include <string>

#include "kernels/gemm/gemm.h"

namespace normscope {

// The product without its epilogue, by the calling thread alone; the pthread flavour needs pin_openblas()
// first.
void openblas_gemm(const Gemm<float>& product);
void openblas_gemm(const Gemm<double>& product);

// Limits OpenBLAS's own thread pool, in its pthread flavour, to one thread; our loops supply the threads. The
// OpenMP flavour is serial inside a parallel loop.
void pin_openblas();

// The loaded library's threading ("openmp", "pthreads", "serial"), version, and kernel for this processor.
struct BlasInfo {
  std::string flavour, version, kernel;
};
BlasInfo blas_info();

}  // namespace normscope
