// OpenBLAS behind the GEMM seam.
#pragma once

#include "kernels/gemm.h"

namespace normscope {

// The whole product by the calling thread; see pin_openblas().
void openblas_gemm(const Gemm<float>& product);
void openblas_gemm(const Gemm<double>& product);

}  // namespace normscope
