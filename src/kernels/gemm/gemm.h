// General matrix multiplication: one seam, whichever provider computes it.
//
// Determinism: C is cut on a grid whose tiles depend on the shape alone, and each tile is computed start to
// end by one thread. So the bits do not depend on the number of threads.
#pragma once

#include <string>

#include "core/types.h"
#include "kernels/pointwise.h"

namespace normscope {

// native: our own kernels, for float; double then uses openblas. automatic: native or openblas, by a fixed
// rule over shapes.
enum class GemmProvider { automatic, openblas, native, reference };

// bf16: the operands of the three products of every linear layer, the head included, and of attention's
// products are rounded to bf16, to nearest, ties to even. Sums are float32, and so is all that is stored.
// Doubles are never rounded.
enum class Precision { fp32, bf16 };

// The provider of a model's products and the precision of their operands.
struct GemmMode {
  GemmProvider provider;
  Precision precision;
  GemmMode(GemmProvider by = GemmProvider::automatic, Precision of_operands = Precision::fp32)
      : provider(by), precision(of_operands) {}
};

// Elementwise work after the product, tile by tile, while a tile is in the cache of the thread that computed
// it.
template <class Real>
struct Epilogue {
  const Real* bias = nullptr;    // (n): added to each row of C
  Matrix<Real> derivative = {};  // laid out as C: becomes f'(C), and C itself f(C)
  Activation activation = Activation::relu;
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

// Error: shapes that do not fit.
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

// The loaded library's threading ("openmp", "pthreads", "serial"), version, and kernel for this processor.
struct BlasInfo {
  std::string flavour, version, kernel;
};
BlasInfo blas_info();

}  // namespace normscope
