// The SIMD kernels of the instruction set this machine has, chosen once at run time.
//
// One source (kernels/simd/*.h) is compiled once for each instruction set (kernels/isa/*.cpp), so a binary
// built on one machine runs on another. NORMSCOPE_ISA=baseline|avx2|avx512 in the environment asks for a
// lower one.
#pragma once

#include "core/types.h"
#include "kernels/gemm/kernel.h"
#include "kernels/pointwise.h"
#include "kernels/rows.h"

namespace normscope {

// Serial kernels: each works on the range it is given, in one thread. The drivers in kernels/*.cpp, whose
// headers say what a kernel computes, cut the work.
template <class Real>
struct KernelTable {
  void (*layer_norm_forward)(const LayerNorm<Real>&, Index begin, Index end, Real* y);  // y of row `begin` on
  void (*layer_norm_backward)(const LayerNorm<Real>&, const NormGradients<Real>&, Index begin, Index end);
  void (*pointwise_norm_forward)(const PointwiseNorm<Real>&, Index begin, Index end, Real* y);
  void (*pointwise_norm_backward)(const PointwiseNorm<Real>&, const NormGradients<Real>&, Index begin,
                                  Index end);
  void (*softmax_stats)(Index n, const Real* x, Real* row_max, Real* row_sum);
  void (*add_exponentials)(Index n, const Real* x, Real row_max, Real factor, Real* dx, Real beta);

  void (*activation)(Activation, Index n, const Real* x, Real* y, Real* derivative);
  void (*swiglu_forward)(Index n, const Real* gate, const Real* x, Real* y);
  void (*swiglu_backward)(Index n, const Real* gate, const Real* x, const Real* dy, Real* dgate,
                          Real gate_beta, Real* dx, Real beta);
  void (*axpby)(Index n, Real alpha, const Real* x, Real beta, Real* y);
  void (*axpy)(Index n, Real alpha, const Real* a, const Real* b, Real* y);
  void (*multiply)(Index n, const Real* a, const Real* b, Real* y);
  double (*dot)(Index n, const Real* a, const Real* b);
  double (*sum_squares)(Index n, const Real* x);
  TensorStats (*tensor_stats)(Index n, const Real* x);
  TensorStats (*column_stats)(Index rows, Index cols, const Real* x, double* squares);
  double (*sum_cosines)(Index rows, Index cols, const Real* a, const Real* b);
  WeightChange (*adamw)(Index n, const AdamW<Real>&, const Real* g, Real* w, Real* m, Real* v);
  WeightChange (*momentum_step)(Index n, const MomentumStep<Real>&, const Real* g, Real* w, Real* v);
};

// What one instruction set has.
struct SimdKernels {
  KernelTable<float> table;
  GemmKernel gemm;
  Bf16Kernels bf16;  // bf16_kernels() knows faster ones
};

const SimdKernels& simd_kernels();

// simd_kernels().table for float; the naive twins in kernels/reference for double.
template <class Real>
const KernelTable<Real>& kernels();

// By AVX512-BF16 where the processor has it and simd_kernels() is avx512.
const Bf16Kernels& bf16_kernels();

// "baseline", "avx2" or "avx512": the one that simd_kernels() returns.
const char* isa_name();

}  // namespace normscope
