// The native GEMM and the parts of it that attention is made of. All are of float.
#pragma once

#include "core/scratch.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/kernel.h"

namespace normscope {

// Fewer rows of A do not repay packing B.
constexpr Index rows_worth_packing = 16;

// A product of few rows whose B is read without packing: sampling's, with weights (out, in).
bool is_few_rows(const Gemm<float>& product);

// The product on a grid of its own; all extents positive.
void gemm_native(const GemmKernel& kernel, const Gemm<float>& product);

// The epilogue of the tile of C from (row, col) on. Its sums are final, in C itself or, where C is bf16,
// elsewhere.
template <class Real>
void apply_epilogue(const Gemm<Real>& product, Index row, Index col, const Matrix<Real>& sums);

// Packs all of B into `room`, packed_size() numbers.
Index packed_size(const GemmKernel& kernel, const Matrix<float>& b);
PackedB pack_b(const GemmKernel& kernel, const Matrix<float>& b, float* room);
bool is_in_panels(const GemmKernel& kernel, const Matrix<float>& b);  // as it lies

// Packs A into `room`, packed_size_a() numbers: none where the kernel reads it in place.
Index packed_size_a(const GemmKernel& kernel, const Matrix<float>& a);
PackedA pack_a(const GemmKernel& kernel, const Matrix<float>& a, float* room);

// Operands as `kernel` reads them: in place where that is possible, else in scratch of this thread's Tag.
template <class Tag>
PackedA packed_a(const GemmKernel& kernel, const Matrix<float>& a) {
  return pack_a(kernel, a, thread_scratch<float, Tag>(packed_size_a(kernel, a)));
}
template <class Tag>
PackedB packed_b(const GemmKernel& kernel, const Matrix<float>& b) {
  if (is_in_panels(kernel, b)) return {b.value, b.ld, kernel.nr};
  return pack_b(kernel, b, thread_scratch<float, Tag>(packed_size(kernel, b)));
}

// C (m, n) = alpha * A * B + beta * C over k steps, by the calling thread.
void multiply(const GemmKernel& kernel, Index m, Index n, Index k, const PackedA& a, const PackedB& b,
              const TileOutput& out);

}  // namespace normscope
