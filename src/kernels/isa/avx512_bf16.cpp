// The bf16 matrix product for x86-64 with AVX-512 and AVX512-BF16. Compiled with those flags; empty on other
// processors.
#if defined(__AVX512BF16__) && defined(__AVX512F__)
#define NORMSCOPE_ISA isa_avx512_bf16
#define NORMSCOPE_VECTOR_BYTES 64
#include "kernels/simd/gemm_bf16.h"

namespace normscope {
const GemmKernel<float>& bf16_kernel_avx512() { return isa_avx512_bf16::gemm_bf16_kernel; }
}  // namespace normscope
#endif
