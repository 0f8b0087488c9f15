#include "kernels/gemm/openblas.h"

#include <cblas.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <limits>
#include <sstream>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"

namespace normscope {
namespace {

// What openblas_get_parallel() returns.
enum Flavour { serial = 0, pthreads = 1, openmp = 2 };

blasint narrow(Index n) {
  require(n <= std::numeric_limits<blasint>::max(), "gemm", n, " is more than OpenBLAS can count");
  return static_cast<blasint>(n);
}

template <class Real, class Cblas>
void multiply(Cblas cblas, const Gemm<Real>& g) {
  const auto transpose = [](const Matrix<Real>& x) { return x.transposed ? CblasTrans : CblasNoTrans; };
  cblas(CblasRowMajor, transpose(g.a), transpose(g.b), narrow(g.c.rows), narrow(g.c.cols), narrow(g.a.cols),
        g.alpha, g.a.value, narrow(g.a.ld), g.b.value, narrow(g.b.ld), g.beta, g.c.value, narrow(g.c.ld));
}

// Of one thread, in every build of x86_64 and arm64.
constexpr std::size_t buffer_size = std::size_t{128} << 20;

bool address_space_is_limited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

void openblas_gemm(const Gemm<float>& g) {
  in_parallel_region([&] { multiply(cblas_sgemm, g); });
}
void openblas_gemm(const Gemm<double>& g) {
  in_parallel_region([&] { multiply(cblas_dgemm, g); });
}

// The OpenMP flavour runs one thread inside a parallel region and where OpenMP has one thread, and
// openblas_gemm() calls it nowhere else; its set_num_threads would lower the thread count of the whole
// program. The pthread flavour has threads of its own, which must not start.
void pin_openblas() {
  if (openblas_get_parallel() == pthreads) openblas_set_num_threads(1);
  if (!address_space_is_limited()) return;
  // A product that finds no room for its buffer would wait for it for ever: all are mapped now, while there
  // is.
  require(
      openblas_buffers_fit(thread_count()), "memory",
      "the limit on address space (ulimit -v) leaves no room for OpenBLAS's buffers, 128 MiB for each of ",
      thread_count(), " threads; raise it, or use fewer threads");
  parallel_region([](int) {
    constexpr Index n = 128;
    std::vector<float> a(n * n), c(n * n);
    multiply<float>(cblas_sgemm, {.a = {a.data(), n, n}, .b = {a.data(), n, n}, .c = {c.data(), n, n}});
  });
}

bool openblas_buffers_fit(int threads) {
  if (!address_space_is_limited()) return true;
  const std::size_t size = static_cast<std::size_t>(threads) * buffer_size + (std::size_t{16} << 20);
  void* room =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return room != MAP_FAILED && munmap(room, size) == 0;
}

BlasInfo blas_info() {
  BlasInfo info;
  const int flavour = openblas_get_parallel();
  info.flavour = flavour == openmp ? "openmp" : flavour == pthreads ? "pthreads" : "serial";
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
