// The GEMM kernel of one instruction set: what the schedule (schedule.cpp) and attention are made of.
//
// The native product packs B once into panels of NR columns, then walks C in register tiles of at most MR by
// NR (after Goto & van de Geijn 2008 and the BLIS micro-kernel):
//
//   for each block of KC steps of k:      one block of a panel is streamed from the L2 cache
//     for each MR rows of C:              their part of A stays in the L1 cache
//       for each panel of B:              the tile of C stays in registers for KC steps
//
// A packed element is one fp32 (k_pack = 1) or two consecutive-k bf16 (k_pack = 2; low half first,
// zero-padded when k is odd). Pairs are kept as the bits of a float: moved, never computed with.
#pragma once

#include <cstddef>

#include "core/matrix.h"
#include "kernels/pointwise.h"
#include "kernels/softmax.h"

namespace normscope {

// A as the kernel reads it: packed element (i, p) is data[i*stride + p], or data[i + p*stride] if transposed.
struct PackedA {
  const float* data;
  Index stride;
  bool transposed;

  PackedA from(Index row, Index p) const {
    return {data + (transposed ? row + p * stride : row * stride + p), stride, transposed};
  }
};

// B in panels of NR columns: packed element (p, j) is data[j / NR * panel_size + p*stride + j % NR]. Packed,
// or B itself with its leading dimension as `stride`.
struct PackedB {
  const float* data;
  Index stride, panel_size;

  PackedB from(Index p, Index panel) const {
    return {data + p * stride + panel * panel_size, stride, panel_size};
  }
};

// The destination of a register tile: C = alpha * product + beta * C; C is not read when beta is 0. A bf16 C
// needs complete sums: beta 0 and at most KC packed elements of k.
struct TileOutput {
  float alpha, beta;
  void* c;
  Index ldc;
  DType dtype;

  TileOutput(float a, float b, const Matrix<float>& m)
      : alpha(a),
        beta(b),
        c(m.half != nullptr ? static_cast<void*>(m.half) : m.value),
        ldc(m.ld),
        dtype(m.dtype()) {}
  TileOutput(const TileOutput& whole, Index row, Index col)
      : alpha(whole.alpha), beta(whole.beta), c(whole.at(row, col)), ldc(whole.ldc), dtype(whole.dtype) {}

  void* at(Index row, Index col) const {
    const Index bytes = dtype == DType::bf16 ? sizeof(bf16) : sizeof(float);
    return static_cast<std::byte*>(c) + (row * ldc + col) * bytes;
  }
};

// A tile of attention's transposed scores: (n_keys + 1, stride), query i in column i, which sees the keys
// before first_visible + i. Masked entries are neither read nor left non-zero. Whole vectors of queries have
// room.
struct CausalTile {
  Index n_queries, first_visible, n_keys, stride;
  const float* dropout_mask;  // 0 or 1/(1-p), laid out as the scores; or null
  SoftmaxStats<float> stats;  // (n_queries)
  // (n_queries) each, or null: sum_j P_j (S_j - max S) and P_0, of which HeadStats come.
  float *mean_score = nullptr, *first_weight = nullptr;
};

// The tiles of attention's backward; all have the stride of the CausalTile. Where k_pack is 1, the last three
// are `scores` and `grads` themselves, and grads_transposed is not written.
struct CausalGradients {
  float *scores, *grads;       // S and dP; not kept
  float *weights_a, *grads_a;  // P∘mask and dS, as PackedA
  float* grads_transposed;     // dS, as a transposed PackedA
};

struct GemmKernel {
  Index mr, nr;  // rows and columns of the largest register tile
  Index kc;      // packed elements of k between two visits of C
  Index k_pack;  // steps of k in a packed element

  Index k_block() const { return kc * k_pack; }  // steps of k between two visits of C
  Index packed(Index k) const { return (k + k_pack - 1) / k_pack; }

  // Packs B, k by at most nr, into one panel: (packed(k), nr), zeros to the right.
  void (*pack_b)(const Matrix<float>& b, float* panel);
  // Packs A, in the order that it has, for PackedA. Null: A is read in place.
  void (*pack_a)(const Matrix<float>& a, float* out, Index stride);
  // C (m, n) from k <= kc packed elements.
  void (*multiply)(Index m, Index n, Index k, const PackedA& a, const PackedB& b, const TileOutput& out);

  // y_j = sum over k of x_p b_jp, j < n: rows of B as they lie, `ldb` apart.
  void (*dot_rows)(Index n, Index k, const float* x, const float* b, Index ldb, float* y);

  // Does its multiply-adds `rounds` times in independent chains that stay in registers, which is the
  // arithmetic peak; returns the floating-point operations. Null: the processor has no such instruction.
  double (*multiply_add_chains)(Index rounds);

  // Attention's softmaxes (kernels/simd/softmax.h), which leave what they make as A of the products that
  // follow: S becomes P∘mask, transposed, in place; S and dP become P∘mask and dS.
  void (*causal_softmax)(const CausalTile&, float* scores);
  void (*causal_softmax_backward)(const CausalTile&, const CausalGradients&);
};

// The product of bf16, and what reads and writes rows of it.
struct Bf16Kernels {
  GemmKernel gemm;
  // To nearest, ties to even; a zero follows an odd row.
  void (*to_bf16)(const Matrix<float>& x, const Matrix<float>& out);
  void (*to_float)(Index n, const bf16* x, float* out);
  void (*multiply)(Index n, const bf16* x, const bf16* y, bf16* out);  // n is even
  void (*activate)(Activation, Index n, const float* x, bf16* y, bf16* derivative);
};

}  // namespace normscope
