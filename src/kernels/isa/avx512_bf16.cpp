// The bf16 matrix product for x86-64 with AVX-512 and AVX512-BF16. Compiled with those flags; empty on other
// processors.
#if defined(__AVX512BF16__) && defined(__AVX512F__)
#define NORMSCOPE_ISA isa_avx512_bf16
#define NORMSCOPE_VECTOR_BYTES 64
#include "kernels/gemm/microkernel.h"

namespace normscope {
const Bf16Kernels& bf16_kernels_avx512() { return isa_avx512_bf16::bf16_kernels; }
}  // namespace normscope
#endif
