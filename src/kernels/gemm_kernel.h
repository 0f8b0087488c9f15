// The native GEMM's entry in the table of SIMD kernels.
#pragma once

#include "core/types.h"
#include "kernels/gemm.h"

namespace normscope {

template <class Real>
struct GemmKernel {
  // Numbers of scratch that a product of at most this size needs.
  Index (*scratch_size)(Index n, Index k);
  // The whole product by the calling thread. scratch: aligned to a cache line.
  void (*run)(const Gemm<Real>& product, Real* scratch);
};

}  // namespace normscope
