// The native GEMM of floats, and the parts of it that attention uses.
#pragma once

#include "core/scratch.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/kernel.h"

namespace normscope {

// The product, by all threads. All extents are positive. Element is float, or Bf16Pair for operands that are
// rounded to bf16.
template <class Element>
void gemm_native(const GemmKernel<Element>& kernel, const Gemm<float>& product);

// Apply the epilogue to the tile of C (rows, cols) that begins at (row, col) and whose sums are final.
template <class Real>
void apply_epilogue(const Gemm<Real>& product, Index row, Index col, Index rows, Index cols);

// The number of elements of B when packed.
template <class Element>
Index packed_size(const GemmKernel<Element>& kernel, const Matrix<float>& b) {
  return kernel.padded_steps(b.rows) * ((b.cols + kernel.nr - 1) / kernel.nr) * kernel.nr;
}

// Pack all of B into `packed`, packed_size() elements.
template <class Element>
OperandB<Element> pack_b(const GemmKernel<Element>& kernel, const Matrix<float>& b, Element* packed);

// A, read in place.
inline OperandA<float> read_in_place(const Matrix<float>& a) { return {a.data, a.ld, a.transposed}; }

// B, read in place if its columns are whole vectors, else packed in this thread's scratch named by Tag.
template <class Tag>
OperandB<float> pack_or_read_in_place(const GemmKernel<float>& kernel, const Matrix<float>& b) {
  if (!b.transposed && b.cols % (kernel.nr / 2) == 0) return {b.data, b.ld, kernel.nr};
  return pack_b(kernel, b, thread_scratch<float, Tag>(packed_size(kernel, b)));
}

// C (m, n) = alpha * A * B + beta * C over any k, by the calling thread. C is read and written every KC steps
// of k.
void gemm_in_thread(const GemmKernel<float>& kernel, Index m, Index n, Index k, const OperandA<float>& a,
                    const OperandB<float>& b, const TileOutput& out);

}  // namespace normscope
