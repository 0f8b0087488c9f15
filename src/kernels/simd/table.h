// What a kernels/isa/*.cpp file gives: its kernels as a table of function pointers.
#pragma once

#include "kernels/simd.h"
#include "kernels/simd/activation.h"
#include "kernels/simd/dynamic_tanh.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/gemm.h"
#include "kernels/simd/gemm_bf16.h"
#include "kernels/simd/norm.h"
#include "kernels/simd/softmax.h"

namespace normscope::NORMSCOPE_ISA {

template <class Real>
constexpr SimdTable<Real> table = {
    .gemm = gemm_kernel<Real>,
    .gemm_bf16 = gemm_bf16_kernel,
    .norm_forward = norm_forward<Real>,
    .norm_backward = norm_backward<Real>,
    .dynamic_tanh_forward = dynamic_tanh_forward<Real>,
    .dynamic_tanh_backward = dynamic_tanh_backward<Real>,
    .activation = activation<Real>,
    .swiglu_forward = swiglu_forward<Real>,
    .swiglu_backward = swiglu_backward<Real>,
    .softmax_stats = softmax_stats<Real>,
    .add_exponentials = add_exponentials<Real>,
    .scale_add = scale_add<Real>,
    .weighted_sum = weighted_sum<Real>,
    .multiply = multiply_elements<Real>,
    .dot = dot<Real>,
    .sum_squares = sum_squares<Real>,
    .moments = moments<Real>,
    .adamw = adamw<Real>,
    .sgd = sgd<Real>,
};

}  // namespace normscope::NORMSCOPE_ISA
