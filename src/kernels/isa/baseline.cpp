// The SIMD kernels for any processor: 16-byte vectors (SSE2 on x86-64, NEON on arm64).
#define NORMSCOPE_ISA isa_baseline
#define NORMSCOPE_VECTOR_BYTES 16
#include "kernels/simd/table.h"

namespace normscope {
const SimdTable<float>& simd_baseline_float() { return isa_baseline::table_of_floats; }
const SimdTable<double>& simd_baseline_double() { return isa_baseline::table_of_doubles; }
}  // namespace normscope
