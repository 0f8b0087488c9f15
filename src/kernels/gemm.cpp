#include "kernels/gemm.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/gemm_kernel.h"
#include "kernels/gemm_openblas.h"
#include "kernels/reference/gemm.h"
#include "kernels/rounded.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// The grid's tile along one side of C, for providers that pack their operands anew in each tile: large tiles
// pack less, small ones spread over more threads. A function of the extent alone.
Index tile_extent(Index extent) { return extent >= 1024 ? 256 : extent >= 384 ? 192 : 96; }

template <class Real>
void scale_output(const Gemm<Real>& g) {
  for (Index i = 0; i < g.m; ++i) {
    for (Index j = 0; j < g.n; ++j) g.c[i * g.ldc + j] = g.beta == 0 ? Real(0) : g.beta * g.c[i * g.ldc + j];
  }
}

// Part of C from (row, col) on, m by n.
template <class Real>
Gemm<Real> part_of(const Gemm<Real>& g, Index row, Index col, Index m, Index n) {
  Gemm<Real> part = g;
  part.m = m;
  part.n = n;
  part.a += g.trans_a == Transpose::yes ? row : row * g.lda;
  part.b += g.trans_b == Transpose::yes ? col * g.ldb : col;
  part.c += row * g.ldc + col;
  return part;
}

}  // namespace

template <class Real>
void apply_epilogue(const Gemm<Real>& g, Index row, Index col, Index rows, Index cols, Real* sums,
                    Index stride) {
  const Epilogue<Real>& then = g.epilogue;
  if (then.empty() && !g.rounded.c) return;
  for (Index i = 0; i < rows; ++i) {
    Real* c = sums + i * stride;
    const Index at = (row + i) * g.ldc + (g.rounded.c ? col / 2 : col);
    if (then.bias != nullptr) simd<Real>().axpby(cols, Real(1), then.bias + col, Real(1), c);
    if (then.slope != nullptr) {
      const auto activate = g.rounded.c ? bf16_kernel<Real>().activate : simd<Real>().activation;
      activate(then.activation, cols, c, g.c + at, then.slope + at);
    } else if (g.rounded.c) {
      round_block(1, cols, c, g.c + at);
    }
  }
}

// What `automatic` means. A table from measurements (NOTES.md), never a timing: the same on every run.
// Products of few rows, as in sampling, do not repay packing B: those are OpenBLAS's, and so are those of
// instruction sets for which our kernel was not tuned.
template <class Real>
GemmProvider automatic_choice(const Gemm<Real>& g) {
  constexpr Index rows_worth_packing = 16;
  const bool tuned = std::string_view(isa_name()) != "baseline";
  return tuned && g.m >= rows_worth_packing ? GemmProvider::native : GemmProvider::openblas;
}

template <class Real>
void gemm(GemmProvider provider, const Gemm<Real>& g) {
  require(rounds<Real>(provider) || !(g.rounded.a || g.rounded.b || g.rounded.c), "gemm",
          "operands rounded to bf16 are multiplied by that provider alone");
  require(!g.rounded.c || (g.beta == 0 && g.k > 0 && g.alpha != 0), "gemm",
          "a rounded C holds a product and nothing else");
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0 || g.alpha == 0) {  // as in BLAS, alpha = 0 means that A and B are not read
    scale_output(g);
    return apply_epilogue(g, 0, 0, g.m, g.n, g.c, g.ldc);
  }
  if (provider == GemmProvider::automatic) provider = automatic_choice(g);
  // Our own kernels have a grid of their own.
  if (provider == GemmProvider::native) return gemm_native(simd<Real>().gemm, g);
  if (provider == GemmProvider::bf16) return gemm_native(bf16_kernel<Real>(), g);
  const Index tile_m = tile_extent(g.m), tile_n = tile_extent(g.n);
  const Index across = block_count(g.n, tile_n);
  const auto tile = [&](Index index) {
    const Index row = index / across * tile_m, col = index % across * tile_n;
    const Index rows = std::min(tile_m, g.m - row), cols = std::min(tile_n, g.n - col);
    const Gemm<Real> part = part_of(g, row, col, rows, cols);
    provider == GemmProvider::openblas ? openblas_gemm(part) : reference::gemm(part);
    apply_epilogue(g, row, col, rows, cols, g.c + row * g.ldc + col, g.ldc);
  };
  parallel_each(block_count(g.m, tile_m) * across, tile);
}

template void apply_epilogue(const Gemm<float>&, Index, Index, Index, Index, float*, Index);
template void apply_epilogue(const Gemm<double>&, Index, Index, Index, Index, double*, Index);
template void gemm(GemmProvider, const Gemm<float>&);
template void gemm(GemmProvider, const Gemm<double>&);

}  // namespace normscope
