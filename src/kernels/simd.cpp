#include "kernels/simd.h"

#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "kernels/isa/tables.h"

namespace normscope {

namespace {

enum class Isa { baseline, avx2, avx512 };
constexpr const char* isa_names[] = {"baseline", "avx2", "avx512"};

Isa best_of_this_machine() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Isa::avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
#endif
  return Isa::baseline;
}

Isa chosen_isa() {
  const Isa best = best_of_this_machine();
  const char* wish = std::getenv("NORMSCOPE_ISA");
  if (wish == nullptr || *wish == '\0') return best;
  const std::string_view name = wish;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (name != isa_names[static_cast<int>(isa)]) continue;
    if (isa > best) refuse("NORMSCOPE_ISA", name, " is not supported by this processor; leave it unset");
    return isa;
  }
  refuse("NORMSCOPE_ISA", "got ", name, "; expected baseline, avx2 or avx512");
}

Isa isa() {
  static const Isa chosen = chosen_isa();
  return chosen;
}

}  // namespace

const SimdKernels& simd_kernels() {
#if defined(__x86_64__)
  if (isa() == Isa::avx512) return simd_avx512();
  if (isa() == Isa::avx2) return simd_avx2();
#endif
  return simd_baseline();
}

template <>
const KernelTable<float>& kernels<float>() {
  return simd_kernels().table;
}

const Bf16Kernels& bf16_kernels() {
#if defined(__x86_64__)
  if (isa() == Isa::avx512 && __builtin_cpu_supports("avx512bf16")) return bf16_kernels_avx512();
#endif
  return simd_kernels().bf16;
}

const char* isa_name() { return isa_names[static_cast<int>(isa())]; }

}  // namespace normscope
