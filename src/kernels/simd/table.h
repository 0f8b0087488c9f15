// What a kernels/isa/*.cpp file gives: its kernels as a table of function pointers.
#pragma once

#include "kernels/simd.h"
#include "kernels/simd/gemm.h"

namespace normscope::NORMSCOPE_ISA {

template <class Real>
constexpr SimdTable<Real> table = {
    .gemm = gemm_kernel<Real>,
};

}  // namespace normscope::NORMSCOPE_ISA
