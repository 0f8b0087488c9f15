// What a kernels/isa/*.cpp file gives: its kernels as a table of function pointers.
#pragma once

#include "kernels/gemm/microkernel.h"
#include "kernels/reference/pointwise.h"
#include "kernels/reference/rows.h"
#include "kernels/simd.h"
#include "kernels/simd/pointwise.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/softmax.h"

namespace normscope::NORMSCOPE_ISA {

constexpr SimdTable<float> table_of_floats = {
    .gemm = gemm_kernel<F32>,
    .bf16 = bf16_kernels,
    .layer_norm_forward = layer_norm_forward,
    .layer_norm_backward = layer_norm_backward,
    .dynamic_tanh_forward = dynamic_tanh_forward,
    .dynamic_tanh_backward = dynamic_tanh_backward,
    .softmax_stats = softmax_stats<float>,
    .add_exponentials = add_exponentials<float>,
    .activation = activation,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .axpby = axpby,
    .axpy = axpy,
    .multiply = multiply_elements,
    .dot = dot,
    .sum_squares = sum_squares,
    .tensor_stats = tensor_stats,
    .adamw = adamw,
    .sgd = sgd,
};

constexpr SimdTable<double> table_of_doubles = {
    .gemm = gemm_kernel<F32>,
    .bf16 = bf16_kernels,
    .layer_norm_forward = reference::layer_norm_forward,
    .layer_norm_backward = reference::layer_norm_backward,
    .dynamic_tanh_forward = reference::dynamic_tanh_forward,
    .dynamic_tanh_backward = reference::dynamic_tanh_backward,
    .softmax_stats = reference::softmax_stats,
    .add_exponentials = reference::add_exponentials,
    .activation = reference::activation,
    .swiglu_forward = reference::swiglu_forward,
    .swiglu_backward = reference::swiglu_backward,
    .axpby = reference::axpby,
    .axpy = reference::axpy,
    .multiply = reference::multiply,
    .dot = reference::dot,
    .sum_squares = reference::sum_squares,
    .tensor_stats = reference::tensor_stats,
    .adamw = reference::adamw,
    .sgd = reference::sgd,
};

}  // namespace normscope::NORMSCOPE_ISA
