// The native GEMM: the kernel of one instruction set, and the product that is made of it.
//
// The native product packs op(B) once into panels of `cols` columns, then walks the rows of C in register
// tiles of at most `rows` by `cols` (after Goto & van de Geijn 2008 and the BLIS micro-kernel):
//
//   for each run of `depth` steps of k:      one run of a panel is read as a stream from the L2 cache
//     for each `rows` rows of C:             their part of A stays in the L1 cache
//       for each panel of op(B):             the tile of C stays in registers for `depth` steps
#pragma once

#include "core/types.h"

namespace normscope {

template <class Real>
struct Gemm;  // gemm.h

// op(A), m rows by k steps, as the kernel reads it where it lies: element (i, p) is at data[i*stride + p], or
// at data[i + p*stride] if `transposed`.
template <class Real>
struct LeftOperand {
  const Real* data;
  Index stride;
  bool transposed;
};

// op(B), k steps by n columns, in panels of GemmKernel::cols columns: element (p, j) is at
// data[j / cols * panel_size + p*stride + j % cols]. Packed, or B itself with its rows as `stride`.
template <class Real>
struct RightOperand {
  const Real* data;
  Index stride, panel_size;
};

// C = alpha * product + beta * C where a register tile leaves the registers; C is not read when beta is 0.
template <class Real>
struct TileOutput {
  Real alpha, beta;
  Real* c;
  Index ldc;
};

// Serial, of one instruction set; its code is kernels/simd/gemm.h.
//
// Operands may be stored as they are, one number a step of k, or rounded to bf16 in pairs: then the bits of a
// stored number hold two steps of k, the earlier in the low half, and a missing last one is zero.
template <class Real>
struct GemmKernel {
  Index rows, cols;  // of the largest register tile
  Index depth;       // stored numbers between two visits of C
  Index steps;       // of k in a stored number: 1, or 2 for pairs of bf16

  // Packs a (k, n) part of op(B), n <= cols, into one panel: (k/steps, cols), the columns past n zero.
  // Element (p, j) is b[p*ldb + j], or b[j*ldb + p] if `transposed`.
  void (*pack_panel)(bool transposed, Index k, Index n, const Real* b, Index ldb, Real* panel);

  // Stores an (m, k) part of op(A) for LeftOperand, in the order that A has. Null: A is read where it lies.
  void (*pack_left)(bool transposed, Index m, Index k, const Real* a, Index lda, Real* out, Index stride);

  // C (m, n) from k <= depth stored numbers of both.
  void (*multiply)(Index m, Index n, Index k, const LeftOperand<Real>& a, const RightOperand<Real>& b,
                   const TileOutput<Real>& out);
};

// The native provider, on a grid of its own (gemm_native.cpp); all extents positive.
template <class Real>
void gemm_native(const GemmKernel<Real>& kernel, const Gemm<Real>& product);

// The epilogue of the tile of C from (row, col) on, (rows, cols), whose numbers are final.
template <class Real>
void finish_tile(const Gemm<Real>& product, Index row, Index col, Index rows, Index cols);

// --- small products that share an operand (attention), all by the calling thread -----------------------

// Numbers that op(B), k steps by n columns, takes packed.
template <class Real>
Index packed_size(const GemmKernel<Real>& kernel, Index k, Index n);

// op(B) as `kernel` reads it: where it lies if that is possible, else packed into `room`, packed_size() long.
template <class Real>
RightOperand<Real> right_operand(const GemmKernel<Real>& kernel, bool transposed, Index k, Index n,
                                 const Real* b, Index ldb, Real* room);

// The rest of B from step p of k on, a multiple of kernel.steps.
template <class Real>
RightOperand<Real> from_step(const GemmKernel<Real>& kernel, RightOperand<Real> b, Index p) {
  b.data += p / kernel.steps * b.stride;
  return b;
}

// Numbers that op(A), m rows by k steps, takes packed.
template <class Real>
Index left_size(const GemmKernel<Real>& kernel, bool transposed, Index m, Index k);

// op(A) as `kernel` reads it: where it lies if that is possible, else packed into `room`, left_size() long.
template <class Real>
LeftOperand<Real> left_operand(const GemmKernel<Real>& kernel, bool transposed, Index m, Index k,
                               const Real* a, Index lda, Real* room);

// C (m, n) = alpha * A * B + beta * C over k steps.
template <class Real>
void multiply(const GemmKernel<Real>& kernel, Index m, Index n, Index k, const LeftOperand<Real>& a,
              const RightOperand<Real>& b, const TileOutput<Real>& out);

}  // namespace normscope
