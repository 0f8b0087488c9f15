// The kernels of a kernels/isa/*.cpp file as function pointers.
#pragma once

#include "kernels/gemm/microkernel.h"
#include "kernels/simd.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/norm_loops.h"
#include "kernels/simd/softmax.h"

namespace normscope::NORMSCOPE_NAMESPACE {

extern const SimdKernels simd_kernels;
constexpr SimdKernels simd_kernels = {
    .table =
        {
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
            .add_scaled = add_scaled,
            .multiply = multiply_elements,
            .dot = dot,
            .sum_squares = sum_squares,
            .tensor_stats = tensor_stats,
            .update = update,
        },
    .gemm = {.mr = MR,
             .nr = NR,
             .kc = KC,
             .reads_b_in_place = MR > 8,
             .pack_panel = pack_panel<float>,
             .macro_kernel = macro_kernel<float>},
    .causal_softmax = causal_softmax,
    .causal_softmax_backward = causal_softmax_backward,
    .round_to_bf16 = round_to_bf16,
    .has_fma = has_fma,
};

}  // namespace normscope::NORMSCOPE_NAMESPACE
