// The GEMM kernel of one instruction set, on which the schedule (schedule.cpp) and attention are built.
//
// The native product packs B once into panels of NR columns, then walks C in register tiles of at most MR by
// NR (after Goto & van de Geijn 2008 and the BLIS micro-kernel):
//
//   for each block of KC steps of k:      one block of a panel is streamed from the L2 cache
//     for each MR rows of C:              their part of A stays in the L1 cache
//       for each panel of B:              the tile of C stays in registers for KC steps
#pragma once

#include "core/types.h"

namespace normscope {

// A packed element holds one step of k as a float, or two steps in bf16: the first in the low half, and a
// zero in the high half past an odd k.
using Bf16Pair = std::uint32_t;

template <class Element>
constexpr Index k_pack = 1;  // steps of k in a packed element
template <>
inline constexpr Index k_pack<Bf16Pair> = 2;

template <class Element>
constexpr Index packed_steps(Index k) {
  return (k + k_pack<Element> - 1) / k_pack<Element>;
}

// A as the kernel reads it: packed element (i, p) is data[i*stride + p], or data[i + p*stride] if transposed.
template <class Element>
struct PackedA {
  const Element* data;
  Index stride;
  bool transposed;

  PackedA from(Index row, Index p) const {
    return {data + (transposed ? row + p * stride : row * stride + p), stride, transposed};
  }
};

// B in panels of NR columns: packed element (p, j) is data[j / NR * panel_size + p*stride + j % NR]. Packed,
// or B itself with its leading dimension as `stride`.
template <class Element>
struct PackedB {
  const Element* data;
  Index stride, panel_size;

  PackedB from(Index p, Index panel) const {
    return {data + p * stride + panel * panel_size, stride, panel_size};
  }
};

// The destination: C = alpha * product + beta * C; C is not read when beta is 0.
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
  Index mr, nr;  // rows and columns of the largest register tile
  Index kc;      // packed elements of k between two visits of C

  Index k_block() const { return kc * k_pack<Element>; }  // steps of k between two visits of C

  // Pack B, k by at most nr, into one panel: (packed_steps(k), nr), zeros to the right.
  void (*pack_b)(const Matrix<float>& b, Element* panel);
  // Pack A in its own order. Null: A is read in place.
  void (*pack_a)(const Matrix<float>& a, Element* out, Index stride);
  // C (m, n) from k <= kc packed elements.
  void (*multiply)(Index m, Index n, Index k, const PackedA<Element>& a, const PackedB<Element>& b,
                   const TileOutput& out);
};

}  // namespace normscope
