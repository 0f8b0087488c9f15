// General matrix product: the one seam to BLAS.
//
// Determinism: the product is cut on a grid whose tiles depend on the shape alone; each tile is computed
// start to end by one thread. So the bits do not depend on the number of threads, whichever provider computes
// the tiles.
#pragma once

#include <string>

#include "core/types.h"
#include "kernels/gemm_kernel.h"
#include "kernels/pointwise.h"

namespace normscope {

// native: our own kernels; bf16: the same with the operands of float products rounded to bf16, sums in float
// (products of doubles are native's).
// automatic: native or openblas, by a fixed table over shapes.
enum class GemmProvider { automatic, openblas, native, bf16, reference };

enum class Transpose : bool { no, yes };

// What follows a product, tile by tile, while a tile is still in the cache of the thread that computed it.
template <class Real>
struct Epilogue {
  const Real* bias = nullptr;  // (n): added to each row of C
  Real* slope = nullptr;       // as C lies: becomes f'(C), and C itself f(C)
  ActivationKind activation = ActivationKind::relu;

  bool empty() const { return bias == nullptr && slope == nullptr; }
};

// C = alpha * op(A) * op(B) + beta * C, then the epilogue; row-major; op(A) is (m, k), op(B) is (k, n), C is
// (m, n). lda, ldb, ldc: stored numbers from one row to the next. When beta is 0, C is not read.
template <class Real>
struct Gemm {
  Transpose trans_a, trans_b;
  Index m, n, k;
  Real alpha;
  const Real* a;
  Index lda;
  const Real* b;
  Index ldb;
  Real beta;
  Real* c;
  Index ldc;
  Epilogue<Real> epilogue = {};
  // What is rounded to bf16 (kernels/rounded.h), of products of float by bf16; a rounded C needs beta = 0.
  struct {
    bool a = false, b = false, c = false;
  } rounded = {};

  Operand<Real> operand_a() const { return {a, lda, trans_a == Transpose::yes, rounded.a}; }
  Operand<Real> operand_b() const { return {b, ldb, trans_b == Transpose::yes, rounded.b}; }
};

// The product on the grid, all threads.
template <class Real>
void gemm(GemmProvider provider, const Gemm<Real>& product);

// Whether the buffers that OpenBLAS maps for so many threads, 128 MiB each, fit under a limit on address
// space (ulimit -v). Makes system calls only.
bool openblas_buffers_fit(int threads);

// Keeps OpenBLAS from starting threads of its own under our loops. Call once, after set_thread_count().
// Error: its buffers do not fit.
void pin_openblas();

// Of the loaded library: how it threads ("openmp", "pthreads", "serial"), its version, the kernel it chose.
struct BlasInfo {
  std::string flavour, version, kernel;
};
BlasInfo blas_info();

}  // namespace normscope
