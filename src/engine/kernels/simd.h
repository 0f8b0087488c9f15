// The SIMD kernels of the best instruction set that this machine has, chosen once at run time.
//
// One source (kernels/simd/*.h) is compiled once for each instruction set (kernels/isa/*.cpp), so a binary
// built on one machine runs on another. NORMSCOPE_ISA in the environment names another set, of lower or
// slower instructions:
//
//   avx512_amx    floats by AVX-512, pairs of bf16 by AMX
//   avx512_bf16   floats by AVX-512, pairs of bf16 by AVX512-BF16
//   avx512, avx2  floats by AVX-512, or by AVX2 and FMA; bf16 by rounded copies, multiplied as floats
//   baseline      the same by SSE2 or NEON
#pragma once

#include <span>

#include "core/types.h"
#include "kernels/arguments.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/kernel.h"
#include "kernels/update_rules.h"

namespace normscope {

// Serial kernels: each works on the range it is given, in one thread. kernels/arguments.h has the
// formulas of norms and softmax, core/types.h those of activations, kernels/update_rules.h those of updates.
// The drivers in kernels/rows.h and kernels/pointwise.h, and the optimiser, cut the work.
template <class Real>
struct KernelTable {
  void (*layer_norm_forward)(const LayerNorm<Real>&, Index begin, Index end, Real* y);
  void (*layer_norm_backward)(const LayerNorm<Real>&, const NormGradients<Real>&, Index begin, Index end);
  void (*pointwise_norm_forward)(const PointwiseNorm<Real>&, Index begin, Index end, Real* y);
  void (*pointwise_norm_backward)(const PointwiseNorm<Real>&, const NormGradients<Real>&, Index begin,
                                  Index end);
  void (*softmax_stats)(Index n, const Real* x, Real* row_max, Real* row_sum);
  void (*add_exponentials)(Index n, const Real* x, Real row_max, Real factor, Real* dx, Real beta);

  // y = f(x) and derivative = f'(x): the epilogue of a product (gemm.h). y or `derivative` may be x.
  void (*activation)(Activation, Index n, const Real* x, Real* y, Real* derivative);
  void (*swiglu_forward)(Index n, const Real* gate, const Real* x, Real* y);
  void (*swiglu_backward)(Index n, const Real* gate, const Real* x, const Real* dy, Real* dgate,
                          Real gate_beta, Real* dx, Real beta);
  void (*axpby)(Index n, Real alpha, const Real* x, Real beta, Real* y);
  void (*add_scaled)(Index n, Real alpha, const Real* a, const Real* b, Real* y);
  void (*multiply)(Index n, const Real* a, const Real* b, Real* y);
  double (*dot)(Index n, const Real* a, const Real* b);
  double (*sum_squares)(Index n, const Real* x);
  TensorStats (*tensor_stats)(Index n, const Real* x);

  // Update the weights w by a rule; m and v are its moments.
  WeightChange (*update)(Index n, const UpdateRule<Real>&, const Real* g, Real* w, Real* m, Real* v);
};

// All kernels of one instruction set.
struct SimdKernels {
  KernelTable<float> table;
  GemmKernel<float> gemm;

  // Attention's softmaxes (kernels/simd/softmax.h), in place: S becomes P∘mask; S and dP become P∘mask and
  // dS.
  void (*causal_softmax)(const CausalTile&, float* scores);
  void (*causal_softmax_backward)(const CausalTile&, float* scores, float* grads);

  // out = x (rows, cols) rounded to bf16, to nearest, ties to even; NaN stays NaN. out may be x.
  void (*round_to_bf16)(Index rows, Index cols, const float* x, Index ldx, float* out, Index ld_out);

  bool has_fma;  // all sets that have it compute the same bits
};

// What computes floats, and what computes products of bf16.
struct InstructionSet {
  const char *name,
      *name_of_floats;  // name_of_floats: the name of the set that has these kernels and no pairs
  const SimdKernels* kernels;
  const GemmKernel<Bf16Pair>* pairs;  // products of bf16; null: by kernels->gemm, of rounded copies
  bool is_supported;                  // by this machine
  bool is_fastest;  // on this machine: its pairs are faster than rounded floats (or it has none)
};

// The best first; on other processors than x86-64 the baseline alone.
std::span<const InstructionSet> instruction_sets();

// The first supported set that is the fastest, or the set that NORMSCOPE_ISA names. Error: it names no
// supported set.
const InstructionSet& instruction_set();
inline const SimdKernels& simd_kernels() { return *instruction_set().kernels; }

// The name of what computes a model: pairs of bf16 take part in native products of bf16 alone.
inline const char* isa_name(const GemmMode& mode) {
  const bool has_pairs = mode.precision == Precision::bf16 && mode.provider != GemmProvider::openblas;
  return has_pairs ? instruction_set().name : instruction_set().name_of_floats;
}

// The kernels of simd_kernels() for float, the naive twins in kernels/reference for double.
template <class Real>
const KernelTable<Real>& kernels();

namespace reference {

// The forward of one group of features of one row, in double: for groups whose squares a float cannot hold.
void layer_norm_group(const LayerNorm<float>& norm, Index row, Index group, float* y);

}  // namespace reference

}  // namespace normscope
