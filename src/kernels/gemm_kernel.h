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
#include "kernels/pointwise.h"
#include "kernels/softmax.h"

namespace normscope {

template <class Real>
struct Gemm;  // gemm.h

// op(X) where it lies: rows of X, `ld` stored numbers apart, as they are or rounded to bf16
// (kernels/rounded.h).
template <class Real>
struct Operand {
  const Real* data;
  Index ld;
  bool transposed = false, rounded = false;

  // What follows element (row, col) of op(X). Rows that are rounded are cut at even columns only.
  Operand from(Index row, Index col) const {
    const Index r = transposed ? col : row, c = transposed ? row : col;
    return {data + r * ld + (rounded ? c / 2 : c), ld, transposed, rounded};
  }
  Operand turned() const { return {data, ld, !transposed, rounded}; }
};

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
// A rounded C (kernels/rounded.h), whose stride counts words, is that of pairs and at most `depth` of them,
// with beta 0.
template <class Real>
struct TileOutput {
  Real alpha, beta;
  Real* c;
  Index ldc;
  bool rounded = false;

  Real* at(Index row, Index col) const { return c + row * ldc + (rounded ? col / 2 : col); }
};

// Scores of attention or weights, transposed: a row for each key, `stride` numbers apart, a column for each
// query, and room for whole vectors of queries and one key more. Query i sees the first visible + i keys of
// `keys`; at those that it does not see, the softmaxes take nothing and write 0.
struct CausalColumns {
  Index queries, visible, keys, stride;
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

  Index steps_a_run() const { return depth * steps; }  // of k, between two visits of C

  // Packs op(B), k steps by n <= cols columns, into one panel: (k/steps, cols), the columns past n zero.
  void (*pack_panel)(Index k, Index n, const Operand<Real>& b, Real* panel);

  // Stores op(A), m rows by k steps, for LeftOperand, in the order that A has. Null: A is read where it lies.
  void (*pack_left)(Index m, Index k, const Operand<Real>& a, Real* out, Index stride);

  // C (m, n) from k <= depth stored numbers of both.
  void (*multiply)(Index m, Index n, Index k, const LeftOperand<Real>& a, const RightOperand<Real>& b,
                   const TileOutput<Real>& out);

  // Of rows rounded to bf16 (null where operands are stored as they are): n numbers as they are again; a
  // function and its derivative, rounded; the product of as many words of both, rounded again.
  void (*widen)(Index n, const Real* rounded, Real* out);
  void (*activate)(ActivationKind, Index n, const Real* x, Real* rounded_y, Real* rounded_slope);
  void (*multiply_rounded)(Index words, const Real* x, const Real* y, Real* out);

  // The softmaxes of attention (kernels/simd/softmax.h), which leave what they make as left operands of the
  // products that follow. `kept`: what weights are multiplied by for dropout, laid out as the scores, or
  // null.
  //
  // S becomes P∘kept, transposed, in place.
  void (*causal_softmax)(const CausalColumns&, const Real* kept, Real* scores, SoftmaxStats<Real> stats);
  // From S and dP, which are not kept: P∘kept and dS, and dS transposed, all with the stride of the columns.
  // Where steps is 1, these are the places of S and dP themselves, and grads_turned is not written.
  void (*causal_softmax_backward)(const CausalColumns&, const Real* kept, SoftmaxStats<Real> stats,
                                  Real* scores, Real* grads, Real* weights_left, Real* grads_left,
                                  Real* grads_turned);
};

// The native provider, on a grid of its own (gemm_native.cpp); all extents positive.
template <class Real>
void gemm_native(const GemmKernel<Real>& kernel, const Gemm<Real>& product);

// The epilogue of the tile of C from (row, col) on, (rows, cols), whose sums are final. They are at `sums`,
// `stride` numbers a row: in C itself or, where C is to be rounded, elsewhere.
template <class Real>
void apply_epilogue(const Gemm<Real>& product, Index row, Index col, Index rows, Index cols, Real* sums,
                    Index stride);

// --- small products that share an operand (attention), all by the calling thread -----------------------

// Numbers that op(B), k steps by n columns, takes packed.
template <class Real>
Index packed_size(const GemmKernel<Real>& kernel, Index k, Index n);

// op(B) as `kernel` reads it: where it lies if that is possible, else packed into `room`, packed_size() long.
template <class Real>
RightOperand<Real> right_operand(const GemmKernel<Real>& kernel, Index k, Index n, const Operand<Real>& b,
                                 Real* room);

// The rest of B from step p of k on, a multiple of kernel.steps.
template <class Real>
RightOperand<Real> from_step(const GemmKernel<Real>& kernel, RightOperand<Real> b, Index p) {
  b.data += p / kernel.steps * b.stride;
  return b;
}

// Numbers that op(A), m rows by k steps, takes packed: none where the kernel reads it where it lies.
template <class Real>
Index left_size(const GemmKernel<Real>& kernel, Index m, Index k, const Operand<Real>& a);

// op(A) as `kernel` reads it: where it lies if that is possible, else packed into `room`, left_size() long.
template <class Real>
LeftOperand<Real> left_operand(const GemmKernel<Real>& kernel, Index m, Index k, const Operand<Real>& a,
                               Real* room);

// C (m, n) = alpha * A * B + beta * C over k steps.
template <class Real>
void multiply(const GemmKernel<Real>& kernel, Index m, Index n, Index k, const LeftOperand<Real>& a,
              const RightOperand<Real>& b, const TileOutput<Real>& out);

}  // namespace normscope
