// What a kernels/isa/*.cpp file gives: its kernels as function pointers.
#pragma once

#include "kernels/gemm/microkernel.h"
#include "kernels/simd.h"
#include "kernels/simd/pointwise.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/softmax.h"

namespace normscope::NORMSCOPE_ISA {

constexpr KernelTable<float> table = {
    .layer_norm_forward = layer_norm_forward,
    .layer_norm_backward = layer_norm_backward,
    .pointwise_norm_forward = pointwise_norm_forward,
    .pointwise_norm_backward = pointwise_norm_backward,
    .softmax_stats = softmax_stats,
    .add_exponentials = add_exponentials,
    .activation = activation,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .axpby = axpby,
    .axpy = axpy,
    .multiply = multiply_elements,
    .dot = dot,
    .sum_squares = sum_squares,
    .tensor_stats = tensor_stats,
    .column_stats = column_stats,
    .sum_cosines = sum_cosines,
    .adamw = adamw,
    .momentum_step = momentum_step,
};

constexpr SimdKernels simd_kernels = {.table = table, .gemm = gemm_kernel<F32>, .bf16 = bf16_kernels};

}  // namespace normscope::NORMSCOPE_ISA
