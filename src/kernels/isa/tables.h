// What the kernels/isa/*.cpp files of this processor family define. Whether the machine can run them is
// kernels/simd.cpp's to know.
#pragma once

#include "kernels/simd.h"

namespace normscope {

const SimdTable<float>& simd_baseline_float();
const SimdTable<double>& simd_baseline_double();
#if defined(__x86_64__)
const SimdTable<float>& simd_avx2_float();
const SimdTable<double>& simd_avx2_double();
const SimdTable<float>& simd_avx512_float();
const SimdTable<double>& simd_avx512_double();
const Bf16Kernels& bf16_kernels_avx512();
#endif

}  // namespace normscope
