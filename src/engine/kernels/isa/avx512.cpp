// The SIMD kernels for x86-64 with AVX-512 (F, BW, DQ, VL). Compiled with those flags; empty on other
// processors.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define NORMSCOPE_NAMESPACE isa_avx512
#define NORMSCOPE_VECTOR_BYTES 64
#include "kernels/simd/table.h"
#endif
