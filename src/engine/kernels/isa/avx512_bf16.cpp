// The product of pairs of bf16 for x86-64 with AVX-512 and AVX512-BF16. Compiled with those flags; empty on
// other processors.
#if defined(__AVX512BF16__) && defined(__AVX512F__)
#define NORMSCOPE_NAMESPACE isa_avx512_bf16
#define NORMSCOPE_VECTOR_BYTES 64
#include "kernels/gemm/microkernel.h"

namespace normscope::NORMSCOPE_NAMESPACE {

extern const GemmKernel<Bf16Pair> bf16_kernel;
constexpr GemmKernel<Bf16Pair> bf16_kernel = {.mr = MR,
                                              .nr = NR,
                                              .kc = KC,
                                              .pack_panel = pack_panel<Bf16Pair>,
                                              .pack_a = pack_a,
                                              .macro_kernel = macro_kernel<Bf16Pair>};

}  // namespace normscope::NORMSCOPE_NAMESPACE
#endif
