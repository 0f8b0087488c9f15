// General matrix multiplication (m, k) @ (k, n) -> (m, n): one function, whichever provider computes it.
//
// The native product, from the outside in; the names are those of BLIS (Van Zee & van de Geijn 2015):
//
//   linear()            ops/linear.h: y = x Wᵀ, and the two products of its backward
//   gemm()              gemm.cpp: checks shapes, chooses the provider
//   gemm_native()       schedule.cpp: chooses KC
//     gemm_split_k()      if A is transposed (dW), partial C's are small, and the blocks of k can be shared
//                         evenly: each thread computes all of C for its blocks of k
//     gemm_by_columns()   if A has few rows and B is large: each thread packs B for its columns of C
//   gemm_tiles()        schedule.cpp: for each block of KC steps of k
//                         pack B into panels of NR columns, or read it in place; with bf16 pack A too
//                         (once for all threads, or each thread for itself)
//                         compute_tile(): each tile of C, by whichever thread is free
//   macro_kernel()      microkernel.h: copies bands of MR rows of a transposed A; then for each chunk of B
//                         that stays in the L2 cache, for each band, for each panel of the chunk
//   micro_kernel()      microkernel.h: MR x NR sums in registers over KC steps of k
//
// KC is 512, or less in a dW; a tile of C has at most 112 rows (MC) and 512 columns; there is no loop over NC, as
// macro_kernel() takes B in chunks of 512 KiB instead.
//
// Determinism: the blocks of k depend on the shapes, transposes and epilogue alone, and each element of C is
// one chain of multiply-adds over the k of a block, blocks in ascending order. So no bit depends on the
// number of threads, on the tile of C that an element falls into, or on the thread that computes it.
#pragma once

#include "core/types.h"
#include "kernels/arguments.h"

namespace normscope {

// Elementwise work that follows the product, applied to each tile while it is in the cache of the thread that
// computed it.
template <class Real>
struct Epilogue {
  const Real* bias = nullptr;    // (n): added to each row of C
  Matrix<Real> derivative = {};  // laid out as C: becomes f'(C), and C itself f(C); absent: no activation
  Activation activation = Activation::relu;  // f
};

// C = A * B + beta * C, then the epilogue. A is (m, k), B is (k, n), C is (m, n); A and B may be
// transposed views. C is not read when beta is 0.
template <class Real>
struct Gemm {
  Matrix<Real> a, b, c;
  Real beta = 0;
  Epilogue<Real> epilogue = {};
  Precision precision = Precision::fp32;
};

// Compute the product. Error: the shapes do not fit.
template <class Real>
void gemm(GemmProvider provider, const Gemm<Real>& product);

// --- OpenBLAS ---

// The product without its epilogue, by the calling thread alone; the pthread flavour needs pin_openblas()
// first.
void openblas_gemm(const Gemm<float>& product);
void openblas_gemm(const Gemm<double>& product);

// Limit OpenBLAS's own thread pool, in its pthread flavour, to one thread; our loops supply the threads. The
// OpenMP flavour is serial inside a parallel loop.
void pin_openblas();

}  // namespace normscope
