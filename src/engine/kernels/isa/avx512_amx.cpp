// The product of pairs of bf16 for x86-64 with AVX-512, AVX512-BF16 and AMX. Compiled with those flags; empty
// on other processors.
#if defined(__AMX_BF16__) && defined(__AVX512BF16__)
#define NORMSCOPE_NAMESPACE isa_avx512_amx
#define NORMSCOPE_VECTOR_BYTES 64
#include "kernels/gemm/amx.h"
#endif
