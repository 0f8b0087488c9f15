#include "kernels/simd.h"

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
#endif

std::span<const InstructionSet> instruction_sets() {
#if defined(__x86_64__)
  static const InstructionSet sets[] = {
      {"avx512", &isa_avx512::simd_kernels,
       __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")},
      {"avx2", &isa_avx2::simd_kernels, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
      {"baseline", &isa_baseline::simd_kernels, true},
  };
#else
  static const InstructionSet sets[] = {{"baseline", &isa_baseline::simd_kernels, true}};
#endif
  return sets;
}

namespace {

const InstructionSet& chosen_set() {
  const char* variable = std::getenv("NORMSCOPE_ISA");
  const std::string_view wish = variable != nullptr ? variable : "";
  std::string names;
  for (const InstructionSet& set : instruction_sets()) {
    if (wish.empty() ? set.is_supported : wish == set.name) {
      if (set.is_supported) return set;
      refuse("NORMSCOPE_ISA", wish, " is not supported by this processor; leave it unset");
    }
    names += text(names.empty() ? "" : ", ", set.name);
  }
  refuse("NORMSCOPE_ISA", "got ", wish, "; expected one of ", names);
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

const GemmKernel<Bf16Pair>* bf16_kernel() {
#if defined(__x86_64__)
  static const bool has_it =
      &simd_kernels() == &isa_avx512::simd_kernels && __builtin_cpu_supports("avx512bf16");
  if (has_it) return &isa_avx512_bf16::bf16_kernel;
#endif
  return nullptr;
}

}  // namespace normscope
