// The SIMD kernels of the instruction set this machine has, chosen once at run time.
//
// One source (kernels/simd/*.h) is compiled once for each instruction set (kernels/isa/*.cpp), so a binary built on
// one machine runs on another. NORMSCOPE_ISA=baseline|avx2|avx512 in the environment asks for a lower one.
#pragma once

#include "core/types.h"
#include "kernels/gemm_kernel.h"

namespace normscope {

// Serial kernels: each works on the range it is given, in one thread. The drivers in kernels/*.cpp cut the work.
template <class Real>
struct SimdTable {
  GemmKernel<Real> gemm;
};

template <class Real>
const SimdTable<Real>& simd();

// "baseline", "avx2" or "avx512": the one that simd() returns.
const char* isa_name();

}  // namespace normscope
