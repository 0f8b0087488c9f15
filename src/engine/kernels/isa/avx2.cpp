// The SIMD kernels for x86-64 with AVX2 and FMA. Compiled with -mavx2 -mfma; empty on other processors.
#if defined(__AVX2__) && defined(__FMA__)
#define NORMSCOPE_NAMESPACE isa_avx2
#define NORMSCOPE_VECTOR_BYTES 32
#include "kernels/simd/table.h"
#endif
