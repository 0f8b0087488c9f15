#include "kernels/gemm.h"

#include <algorithm>

#include "core/error.h"
#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/gemm_openblas.h"
#include "kernels/reference/gemm.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// The grid's tile along one side of C: large tiles pack less, small ones spread over more threads. A function
// of the extent alone.
Index tile_extent(Index extent) { return extent >= 1024 ? 256 : extent >= 384 ? 192 : 96; }

template <class Real>
void scale_output(const Gemm<Real>& g) {
  for (Index i = 0; i < g.m; ++i) {
    for (Index j = 0; j < g.n; ++j) g.c[i * g.ldc + j] = g.beta == 0 ? Real(0) : g.beta * g.c[i * g.ldc + j];
  }
}

template <class Real>
void run_native(const Gemm<Real>& g) {
  struct Panels;
  const GemmKernel<Real>& kernel = simd<Real>().gemm;
  kernel.run(g, thread_scratch<Real, Panels>(kernel.scratch_size(g.n, g.k)));
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
void gemm_serial(GemmProvider provider, const Gemm<Real>& g) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return scale_output(g);
  switch (provider) {
    case GemmProvider::openblas:
      return openblas_gemm(g);
    case GemmProvider::native:
      return run_native(g);
    case GemmProvider::reference:
      return reference::gemm(g);
  }
}

template <class Real>
void gemm(GemmProvider provider, const Gemm<Real>& g) {
  const Index tile_m = tile_extent(g.m), tile_n = tile_extent(g.n);
  const Index across = block_count(g.n, tile_n);
  const auto tile = [&](Index index) {
    const Index row = index / across * tile_m, col = index % across * tile_n;
    gemm_serial(provider, part_of(g, row, col, std::min(tile_m, g.m - row), std::min(tile_n, g.n - col)));
  };
  parallel_each(block_count(g.m, tile_m) * across, tile);
}

GemmProvider automatic_gemm_provider() { return GemmProvider::openblas; }

template void gemm_serial(GemmProvider, const Gemm<float>&);
template void gemm_serial(GemmProvider, const Gemm<double>&);
template void gemm(GemmProvider, const Gemm<float>&);
template void gemm(GemmProvider, const Gemm<double>&);

}  // namespace normscope
