// The native GEMM and the parts of it that attention uses; float only.
#pragma once

#include "core/scratch.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/kernel.h"

namespace normscope {

// The product on a grid of its own; all extents positive. Element: float, or Bf16Pair for operands rounded to
// bf16.
template <class Element>
void gemm_native(const GemmKernel<Element>& kernel, const Gemm<float>& product);

// The epilogue of the tile of C (rows, cols) from (row, col) on, whose sums are final.
template <class Real>
void apply_epilogue(const Gemm<Real>& product, Index row, Index col, Index rows, Index cols);

// Elements of B when packed.
template <class Element>
Index packed_size(const GemmKernel<Element>& kernel, const Matrix<float>& b) {
  return packed_steps<Element>(b.rows) * ((b.cols + kernel.nr - 1) / kernel.nr) * kernel.nr;
}

// Pack all of B into `packed`, packed_size() elements.
template <class Element>
PackedB<Element> pack_b(const GemmKernel<Element>& kernel, const Matrix<float>& b, Element* packed);

// B as `kernel` reads it: in place if whole vectors of columns allow it, else in scratch of this thread's
// Tag.
template <class Tag>
PackedB<float> packed_b(const GemmKernel<float>& kernel, const Matrix<float>& b) {
  if (!b.transposed && b.cols % (kernel.nr / 2) == 0) return {b.data, b.ld, kernel.nr};
  return pack_b(kernel, b, thread_scratch<float, Tag>(packed_size(kernel, b)));
}

// C (m, n) = alpha * A * B + beta * C over any k, by the calling thread: a visit of C every KC steps.
void multiply(const GemmKernel<float>& kernel, Index m, Index n, Index k, const PackedA<float>& a,
              const PackedB<float>& b, const TileOutput& out);

}  // namespace normscope
