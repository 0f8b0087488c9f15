// The GEMM kernel of one instruction set, on which the schedule (schedule.cpp) and attention are built.
//
// B is packed into panels of NR columns; C is computed in register tiles of at most MR by NR (Goto & van de
// Geijn 2008). While a tile is computed its sums stay in registers, its rows of A in the L1 cache, and a
// panel of B streams from the L2 cache. gemm.h draws the loops.
#pragma once

#include "core/types.h"

namespace normscope {

// A packed element holds one step of k (a float) or two (a pair of bf16, the earlier one in the low half). If
// k is odd, the high half of the last element is zero.
using Bf16Pair = std::uint32_t;

template <class Element>
constexpr Index k_pack = 1;  // steps of k in a packed element
template <>
inline constexpr Index k_pack<Bf16Pair> = 2;

template <class Element>
constexpr Index packed_steps(Index k) {
  return (k + k_pack<Element> - 1) / k_pack<Element>;
}

// The operand A as the micro-kernel reads it, packed or in place. Element (i, p) is data[i*stride + p], or
// data[i + p*stride] if transposed.
template <class Element>
struct OperandA {
  const Element* data;
  Index stride;
  bool transposed;

  OperandA from(Index row, Index p) const {
    return {data + (transposed ? row + p * stride : row * stride + p), stride, transposed};
  }
};

// The operand B as the micro-kernel reads it, in panels of NR columns. Element (p, j) is
// data[j / NR * panel_size + p*stride + j % NR]. If B is read in place, `stride` is its leading dimension and
// `panel_size` is NR.
template <class Element>
struct OperandB {
  const Element* data;
  Index stride, panel_size;

  OperandB from(Index p, Index panel) const {
    return {data + p * stride + panel * panel_size, stride, panel_size};
  }
};

// The destination of a tile: C = alpha * product + beta * C, where C is not read when beta is 0.
struct TileOutput {
  float alpha, beta;
  float* c;
  Index ldc;

  TileOutput(float a, float b, const Matrix<float>& m) : alpha(a), beta(b), c(m.data), ldc(m.ld) {}
  TileOutput(const TileOutput& whole, Index row, Index col)
      : alpha(whole.alpha), beta(whole.beta), c(whole.c + row * whole.ldc + col), ldc(whole.ldc) {}
};

template <class Element>
struct GemmKernel {
  Index mr, nr;                   // rows and columns of the largest register tile
  Index kc;                       // packed elements of k between two visits of C
  bool reads_b_in_place = false;  // where rows of B lie near to each other
  bool packs_a_by_rows = false;   // also if A is transposed, which is else packed in the order of its memory
  Index steps_at_once = 1;        // packed elements of k; zeros fill up the last of A and of B

  Index k_block() const { return kc * k_pack<Element>; }  // steps of k between two visits of C
  Index padded_steps(Index k) const {
    return (packed_steps<Element>(k) + steps_at_once - 1) / steps_at_once * steps_at_once;
  }

  // Pack B, k by at most nr, into one panel: (padded_steps(k), nr), zeros to the right and below.
  void (*pack_panel)(const Matrix<float>& b, Element* panel);
  // Pack A, in whole vectors with zeros behind the last numbers. Null if the micro-kernel reads A in place.
  void (*pack_a)(const Matrix<float>& a, Element* out, Index stride) = nullptr;
  // C (m, n) from k <= kc elements of each operand, by the calling thread.
  void (*macro_kernel)(Index m, Index n, Index k, const OperandA<Element>& a, const OperandB<Element>& b,
                       const TileOutput& out);
};

}  // namespace normscope
