#include "kernels/simd.h"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"

namespace normscope {

// Definitions: kernels/isa/*.cpp.
namespace isa_baseline {
extern const SimdKernels simd_kernels;
}
#if defined(__x86_64__)
namespace isa_avx2 {
extern const SimdKernels simd_kernels;
}
namespace isa_avx512 {
extern const SimdKernels simd_kernels;
}
namespace isa_avx512_bf16 {
extern const GemmKernel<Bf16Pair> bf16_kernel;
}
namespace isa_avx512_amx {
extern const GemmKernel<Bf16Pair> bf16_kernel;
}

namespace {

// Whether the processor and the system have AMX, and the system lets this process use it. Linux reserves room
// for the tiles in the signal stack of a thread only after a request, which holds for all threads and is
// refused if a thread's signal stack (sigaltstack) is smaller than sysconf(_SC_MINSIGSTKSZ) says.
bool may_use_amx() {
#if defined(__linux__)
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
         syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace
#endif

std::span<const InstructionSet> instruction_sets() {
#if defined(__x86_64__)
  static const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const bool has_dot_product = has_avx512 && __builtin_cpu_supports("avx512bf16");
  // A product of pairs by AVX512-BF16 is 1.7 times as fast as float32's on AMD's processors, since Zen 4, and
  // 0.6 times as fast on Intel's: NOTES.md.
  static const bool is_amd = __builtin_cpu_is("amd");
  static const InstructionSet sets[] = {  // name, name of floats, kernels, pairs, is_supported, is_fastest
      {"avx512_amx", "avx512", &isa_avx512::simd_kernels, &isa_avx512_amx::bf16_kernel,
       has_dot_product && may_use_amx(), true},
      {"avx512_bf16", "avx512", &isa_avx512::simd_kernels, &isa_avx512_bf16::bf16_kernel, has_dot_product,
       is_amd},
      {"avx512", "avx512", &isa_avx512::simd_kernels, nullptr, has_avx512, true},
      {"avx2", "avx2", &isa_avx2::simd_kernels, nullptr, has_avx2, true},
      {"baseline", "baseline", &isa_baseline::simd_kernels, nullptr, true, true},
  };
#else
  static const InstructionSet sets[] = {
      {"baseline", "baseline", &isa_baseline::simd_kernels, nullptr, true, true}};
#endif
  return sets;
}

namespace {

const InstructionSet& chosen_set() {
  const char* variable = std::getenv("NORMSCOPE_ISA");
  const std::string_view wish = variable != nullptr ? variable : "";
  std::string names;
  for (const InstructionSet& set : instruction_sets()) {
    if (wish.empty() ? set.is_supported && set.is_fastest : wish == set.name) {
      if (set.is_supported) return set;
      refuse("isa", "NORMSCOPE_ISA: ", wish, " is not supported or not permitted on this machine; leave it unset");
    }
    names += text(names.empty() ? "" : ", ", set.name);
  }
  refuse("isa", "NORMSCOPE_ISA: got ", wish, "; expected one of ", names);
}

}  // namespace

const InstructionSet& instruction_set() {
  static const InstructionSet& chosen = chosen_set();
  return chosen;
}

template <>
const KernelTable<float>& kernels<float>() {
  return simd_kernels().table;
}

}  // namespace normscope
