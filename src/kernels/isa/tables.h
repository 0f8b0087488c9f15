// What the kernels/isa/*.cpp files of this processor family define. Whether the machine can run them is
// kernels/simd.cpp's to know.
#pragma once

#include "kernels/simd.h"

namespace normscope {

const SimdKernels& simd_baseline();
#if defined(__x86_64__)
const SimdKernels& simd_avx2();
const SimdKernels& simd_avx512();
const Bf16Kernels& bf16_kernels_avx512();
#endif

}  // namespace normscope
