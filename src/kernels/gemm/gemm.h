// General matrix multiplication: one seam, whichever provider computes it.
//
// Determinism: C is cut on a grid whose tiles depend on the shape alone, and each tile is computed start to
// end by one thread. So the bits do not depend on the number of threads.
#pragma once

#include <type_traits>

#include "core/matrix.h"
#include "kernels/pointwise.h"

namespace normscope {

// native: our own kernels; bf16: the same with operands rounded to bf16 and sums in float. Both are of
// floats; products of doubles are then openblas's. automatic: native or openblas, by a fixed rule over
// shapes.
enum class GemmProvider { automatic, openblas, native, bf16, reference };

// The dtype in which a provider reads its operands: what only GEMMs read may be stored so without a change of
// any product.
template <class Real>
constexpr DType operand_dtype(GemmProvider provider) {
  return std::is_same_v<Real, float> && provider == GemmProvider::bf16 ? DType::bf16 : DType::real;
}

// What follows the product, tile by tile, while a tile is still in the cache of the thread that computed it.
template <class Real>
struct Epilogue {
  const Real* bias = nullptr;    // (n): added to each row of C
  Matrix<Real> derivative = {};  // laid out as C: becomes f'(C), and C itself f(C)
  Activation activation = Activation::relu;

  bool empty() const { return bias == nullptr && !derivative; }
};

// C = alpha * A * B + beta * C, then the epilogue. A is (m, k), B is (k, n), C is (m, n); A and B may be
// transposed views. C is not read when beta is 0, as it must be for a bf16 C.
template <class Real>
struct Gemm {
  Matrix<Real> a, b, c;
  Real alpha = 1, beta = 0;
  Epilogue<Real> epilogue = {};
};

// Error: shapes that do not fit, or a dtype that the provider cannot read or write.
template <class Real>
void gemm(GemmProvider provider, const Gemm<Real>& product);

}  // namespace normscope
