#include "kernels/gemm/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/parallel.h"
#include "core/scratch.h"
#include "kernels/gemm/schedule.h"
#include "kernels/reference/kernels.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// --- OpenBLAS ---

blasint narrow(Index n) {
  require(n <= std::numeric_limits<blasint>::max(), "gemm", n, " exceeds OpenBLAS's index type");
  return static_cast<blasint>(n);
}

template <class Real, class Cblas>
void call_openblas(Cblas cblas, const Gemm<Real>& g) {
  const auto transpose = [](const Matrix<Real>& x) { return x.transposed ? CblasTrans : CblasNoTrans; };
  const ThreadCount serial(1);  // the OpenMP flavour starts OpenMP's threads, except inside a parallel loop
  cblas(CblasRowMajor, transpose(g.a), transpose(g.b), narrow(g.c.rows), narrow(g.c.cols), narrow(g.a.cols),
        Real(1), g.a.data, narrow(g.a.ld), g.b.data, narrow(g.b.ld), g.beta, g.c.data, narrow(g.c.ld));
}

}  // namespace

void openblas_gemm(const Gemm<float>& g) { call_openblas(cblas_sgemm, g); }
void openblas_gemm(const Gemm<double>& g) { call_openblas(cblas_dgemm, g); }

void pin_openblas() {
  if (openblas_get_parallel() == OPENBLAS_THREAD) openblas_set_num_threads(1);
}

// --- the seam ---

namespace {

template <class Real>
void check_shapes(const Gemm<Real>& g) {
  require(g.a.rows == g.c.rows && g.b.cols == g.c.cols && g.a.cols == g.b.rows, "gemm", "shape mismatch: (",
          g.a.rows, ", ", g.a.cols, ") times (", g.b.rows, ", ", g.b.cols, ") is no (", g.c.rows, ", ",
          g.c.cols, ")");
}

// The grid's tile along one side of C, for providers that pack their operands anew in each tile: large tiles
// pack less, small ones spread over more threads. A function of the extent alone.
Index tile_extent(Index extent) { return extent >= 1024 ? 256 : extent >= 384 ? 192 : 96; }

// Call compute(part) for each tile of C, then apply the epilogue to it.
template <class Real, class Compute>
void for_each_tile(const Gemm<Real>& g, Compute&& compute) {
  const Index m = g.c.rows, n = g.c.cols, k = g.a.cols, tile_m = tile_extent(m), tile_n = tile_extent(n);
  const Index across = block_count(n, tile_n);
  parallel_for(block_count(m, tile_m) * across, [&](Index tile) {
    const Index row = tile / across * tile_m, col = tile % across * tile_n;
    const Index rows = std::min(tile_m, m - row), cols = std::min(tile_n, n - col);
    compute(Gemm<Real>{.a = g.a.part(row, 0, rows, k),
                       .b = g.b.part(0, col, k, cols),
                       .c = g.c.part(row, col, rows, cols),
                       .beta = g.beta});
    apply_epilogue(g, row, col, rows, cols);
  });
}

// A copy of x rounded to bf16, in this thread's scratch named by Tag.
template <class Tag>
Matrix<float> rounded(const Matrix<float>& x) {
  const Index rows = x.transposed ? x.cols : x.rows, cols = x.transposed ? x.rows : x.cols;
  const Matrix<float> copy(thread_scratch<float, Tag>(x.size()), rows, cols);
  constexpr Index rows_per_block = 64;
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    simd_kernels().round_to_bf16(end - begin, cols, x.data + begin * x.ld, x.ld, copy.data + begin * cols,
                                 cols);
  });
  return x.transposed ? copy.t() : copy;
}

}  // namespace

template <class Real>
void gemm(GemmProvider provider, const Gemm<Real>& product) {
  check_shapes(product);
  Gemm<Real> g = product;
  if (g.c.size() == 0) return;
  if (g.a.cols == 0) provider = GemmProvider::reference;  // beta C and the epilogue
  if constexpr (std::is_same_v<Real, float>) {
    if (provider == GemmProvider::automatic) provider = GemmProvider::native;
    if (g.precision == Precision::bf16) {
      const GemmKernel<Bf16Pair>* pairs = instruction_set().pairs;
      if (provider == GemmProvider::native && pairs != nullptr) return gemm_native(*pairs, g);
      g.a = rounded<struct RoundedA>(g.a);
      g.b = rounded<struct RoundedB>(g.b);
    }
    if (provider == GemmProvider::native) return gemm_native(simd_kernels().gemm, g);
  }
  if (provider == GemmProvider::reference) return for_each_tile(g, reference::gemm<Real>);
  for_each_tile(g, [](const Gemm<Real>& part) { openblas_gemm(part); });
}

template void gemm(GemmProvider, const Gemm<float>&);
template void gemm(GemmProvider, const Gemm<double>&);

}  // namespace normscope
