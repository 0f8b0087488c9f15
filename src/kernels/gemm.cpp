#include "kernels/gemm.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "core/parallel.h"
#include "kernels/gemm_kernel.h"
#include "kernels/gemm_openblas.h"
#include "kernels/reference/gemm.h"
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

// Deals with products that have no elements, or elements without terms. As in BLAS, alpha = 0 means that A
// and B are not read.
template <class Real>
bool trivial(const Gemm<Real>& g) {
  if (g.m == 0 || g.n == 0) return true;
  if (g.k > 0 && g.alpha != 0) return false;
  scale_output(g);
  return true;
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
void gemm_bf16(const Gemm<Real>& g, bool serial) {
  if constexpr (std::is_same_v<Real, float>) {
    gemm_native(bf16_kernel(), g, serial);
  } else {
    gemm_native(simd<Real>().gemm, g, serial);
  }
}

// What `automatic` means for a product that all threads share. A table from measurements (README, Speed),
// never a timing: the same on every run. Serial products, attention's, are narrow: those are OpenBLAS's. So
// are products of few rows, as in sampling, which do not repay packing B, and those of instruction sets for
// which our kernel was not tuned.
template <class Real>
GemmProvider automatic_choice(const Gemm<Real>& g) {
  constexpr Index rows_worth_packing = 16;
  const bool tuned = std::string_view(isa_name()) != "baseline";
  return tuned && g.m >= rows_worth_packing ? GemmProvider::native : GemmProvider::openblas;
}

template <class Real>
void gemm_serial(GemmProvider provider, const Gemm<Real>& g) {
  if (trivial(g)) return;
  switch (provider) {
    case GemmProvider::automatic:
    case GemmProvider::openblas:
      return openblas_gemm(g);
    case GemmProvider::native:
      return gemm_native(simd<Real>().gemm, g, true);
    case GemmProvider::bf16:
      return gemm_bf16(g, true);
    case GemmProvider::reference:
      return reference::gemm(g);
  }
}

template <class Real>
void gemm(GemmProvider provider, const Gemm<Real>& g) {
  if (trivial(g)) return;
  if (provider == GemmProvider::automatic) provider = automatic_choice(g);
  // Our own kernels have a grid of their own.
  if (provider == GemmProvider::native) return gemm_native(simd<Real>().gemm, g, false);
  if (provider == GemmProvider::bf16) return gemm_bf16(g, false);
  const Index tile_m = tile_extent(g.m), tile_n = tile_extent(g.n);
  const Index across = block_count(g.n, tile_n);
  const auto tile = [&](Index index) {
    const Index row = index / across * tile_m, col = index % across * tile_n;
    gemm_serial(provider, part_of(g, row, col, std::min(tile_m, g.m - row), std::min(tile_n, g.n - col)));
  };
  parallel_each(block_count(g.m, tile_m) * across, tile);
}

template void gemm_serial(GemmProvider, const Gemm<float>&);
template void gemm_serial(GemmProvider, const Gemm<double>&);
template void gemm(GemmProvider, const Gemm<float>&);
template void gemm(GemmProvider, const Gemm<double>&);

}  // namespace normscope
