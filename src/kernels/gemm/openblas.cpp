#include "kernels/gemm/openblas.h"

#include <cblas.h>

#include <limits>
#include <sstream>

#include "core/error.h"
#include "core/parallel.h"

namespace normscope {
namespace {

blasint narrow(Index n) {
  require(n <= std::numeric_limits<blasint>::max(), "gemm", n, " is more than OpenBLAS can count");
  return static_cast<blasint>(n);
}

template <class Real, class Cblas>
void multiply(Cblas cblas, const Gemm<Real>& g) {
  const auto transpose = [](const Matrix<Real>& x) { return x.transposed ? CblasTrans : CblasNoTrans; };
  const ThreadCount serial(1);  // the OpenMP flavour counts OpenMP's threads, except inside a parallel loop
  cblas(CblasRowMajor, transpose(g.a), transpose(g.b), narrow(g.c.rows), narrow(g.c.cols), narrow(g.a.cols),
        g.alpha, g.a.data, narrow(g.a.ld), g.b.data, narrow(g.b.ld), g.beta, g.c.data, narrow(g.c.ld));
}

}  // namespace

void openblas_gemm(const Gemm<float>& g) { multiply(cblas_sgemm, g); }
void openblas_gemm(const Gemm<double>& g) { multiply(cblas_dgemm, g); }

void pin_openblas() {
  if (openblas_get_parallel() == OPENBLAS_THREAD) openblas_set_num_threads(1);
}

BlasInfo blas_info() {
  BlasInfo info;
  const int flavour = openblas_get_parallel();
  info.flavour = flavour == OPENBLAS_OPENMP ? "openmp" : flavour == OPENBLAS_THREAD ? "pthreads" : "serial";
  std::istringstream words(openblas_get_config());  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  for (std::string word; words >> word;) {
    if (word.find('.') != std::string::npos) {
      info.version = word;
      break;
    }
  }
  info.kernel = openblas_get_corename();
  return info;
}

}  // namespace normscope
