// The native GEMM: packed panels and a register-blocked micro-kernel, after Goto & van de Geijn (2008) and
// BLIS (Van Zee & van de Geijn 2015), from one source for every vector width.
//
//   for each block of KC inner indices:  pack op(B)'s rows into panels NR wide
//     for each block of MC rows:         pack op(A)'s rows into panels MR high, scaled by alpha
//       for each panel pair:             an MR x NR tile of C in registers, KC steps of outer products
//
// A panel of B (KC x NR) stays in the first-level cache while the panels of A stream by from the second.
// Edges are padded with zeros, so there is one micro-kernel. The order of the sums depends on the shape
// alone.
#pragma once

#include "kernels/gemm_kernel.h"
#include "kernels/simd/vector.h"

namespace normscope::NORMSCOPE_ISA {

// Registers: MR x 2 accumulators, 2 of B, 1 of A. 32 vector registers with AVX-512, 16 elsewhere on x86-64.
constexpr Index micro_rows = NORMSCOPE_VECTOR_BYTES == 64 ? 14 : 6;  // MR
constexpr Index micro_vectors = 2;                                   // NR in vectors
template <class Real>
constexpr Index micro_cols = micro_vectors* lanes<Real>;  // NR
constexpr Index block_rows = 12 * micro_rows;             // MC
constexpr Index block_depth = 256;                        // KC

constexpr Index round_up(Index n, Index unit) { return (n + unit - 1) / unit * unit; }

// panels[p][k][i] = alpha * op(A)(first_row + p*MR + i, first_k + k), zeros past the last row.
template <class Real>
inline void pack_a(const Gemm<Real>& g, Index first_row, Index rows, Index first_k, Index depth,
                   Real* panels) {
  for (Index p = 0; p < rows; p += micro_rows, panels += micro_rows * depth) {
    const Index height = rows - p < micro_rows ? rows - p : micro_rows;
    if (height < micro_rows) {
      for (Index i = 0; i < micro_rows * depth; ++i) panels[i] = 0;
    }
    const Index row = first_row + p;
    if (g.trans_a == Transpose::yes) {
      for (Index k = 0; k < depth; ++k) {
        const Real* a = g.a + (first_k + k) * g.lda + row;
        for (Index i = 0; i < height; ++i) panels[k * micro_rows + i] = g.alpha * a[i];
      }
    } else {
      for (Index i = 0; i < height; ++i) {
        const Real* a = g.a + (row + i) * g.lda + first_k;
        for (Index k = 0; k < depth; ++k) panels[k * micro_rows + i] = g.alpha * a[k];
      }
    }
  }
}

// panels[p][k][j] = op(B)(first_k + k, p*NR + j), zeros past the last column.
template <class Real>
inline void pack_b(const Gemm<Real>& g, Index first_k, Index depth, Real* panels) {
  constexpr Index width = micro_cols<Real>;
  for (Index p = 0; p < g.n; p += width, panels += width * depth) {
    const Index cols = g.n - p < width ? g.n - p : width;
    if (cols < width) {
      for (Index i = 0; i < width * depth; ++i) panels[i] = 0;
    }
    if (g.trans_b == Transpose::yes) {
      for (Index j = 0; j < cols; ++j) {
        const Real* b = g.b + (p + j) * g.ldb + first_k;
        for (Index k = 0; k < depth; ++k) panels[k * width + j] = b[k];
      }
    } else {
      for (Index k = 0; k < depth; ++k) {
        const Real* b = g.b + (first_k + k) * g.ldb + p;
        for (Index j = 0; j < cols; ++j) panels[k * width + j] = b[j];
      }
    }
  }
}

// tile (MR x NR, row stride `stride`) = beta * tile + a-panel * b-panel.
template <class Real>
inline void micro_kernel(Index depth, const Real* a, const Real* b, Real beta, Real* tile, Index stride) {
  Vec<Real> sum[micro_rows][micro_vectors] = {};
  for (Index k = 0; k < depth; ++k, a += micro_rows, b += micro_cols<Real>) {
    Vec<Real> bs[micro_vectors];
#pragma GCC unroll 2
    for (Index j = 0; j < micro_vectors; ++j) bs[j] = load(b + j * lanes<Real>);
#pragma GCC unroll 14
    for (Index i = 0; i < micro_rows; ++i) {
#pragma GCC unroll 2
      for (Index j = 0; j < micro_vectors; ++j) sum[i][j] += a[i] * bs[j];
    }
  }
#pragma GCC unroll 14
  for (Index i = 0; i < micro_rows; ++i) {
#pragma GCC unroll 2
    for (Index j = 0; j < micro_vectors; ++j)
      add_into(tile + i * stride + j * lanes<Real>, beta, sum[i][j], Whole{});
  }
}

// The micro-kernel at the edge of C, by way of a whole tile.
template <class Real>
inline void edge_kernel(Index depth, const Real* a, const Real* b, Real beta, Real* c, Index ldc, Index rows,
                        Index cols) {
  constexpr Index width = micro_cols<Real>;
  Real tile[micro_rows * width];
  micro_kernel(depth, a, b, Real(0), tile, width);
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < cols; ++j) {
      Real& out = c[i * ldc + j];
      out = (beta == 0 ? Real(0) : beta * out) + tile[i * width + j];
    }
  }
}

template <class Real>
Index gemm_scratch_size(Index n, Index k) {
  const Index depth = k < block_depth ? k : block_depth;
  return (block_rows + round_up(n, micro_cols<Real>)) * depth;
}

template <class Real>
void gemm_run(const Gemm<Real>& g, Real* scratch) {
  constexpr Index width = micro_cols<Real>;
  Real* packed_b = scratch + block_rows * (g.k < block_depth ? g.k : block_depth);
  for (Index first_k = 0; first_k < g.k; first_k += block_depth) {
    const Index depth = g.k - first_k < block_depth ? g.k - first_k : block_depth;
    const Real beta = first_k == 0 ? g.beta : Real(1);
    pack_b(g, first_k, depth, packed_b);
    for (Index first_row = 0; first_row < g.m; first_row += block_rows) {
      const Index rows = g.m - first_row < block_rows ? g.m - first_row : block_rows;
      pack_a(g, first_row, rows, first_k, depth, scratch);
      for (Index col = 0; col < g.n; col += width) {
        const Index cols = g.n - col < width ? g.n - col : width;
        for (Index row = 0; row < rows; row += micro_rows) {
          const Index height = rows - row < micro_rows ? rows - row : micro_rows;
          const Real *a = scratch + row * depth, *b = packed_b + col * depth;
          Real* c = g.c + (first_row + row) * g.ldc + col;
          if (height == micro_rows && cols == width) {
            micro_kernel(depth, a, b, beta, c, g.ldc);
          } else {
            edge_kernel(depth, a, b, beta, c, g.ldc, height, cols);
          }
        }
      }
    }
  }
}

template <class Real>
constexpr GemmKernel<Real> gemm_kernel = {gemm_scratch_size<Real>, gemm_run<Real>};

}  // namespace normscope::NORMSCOPE_ISA
