// The SIMD kernels for any processor: 16-byte vectors (SSE2 on x86-64, NEON on arm64).
#define NORMSCOPE_NAMESPACE isa_baseline
#define NORMSCOPE_VECTOR_BYTES 16
#include "kernels/simd/table.h"
