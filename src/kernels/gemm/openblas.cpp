#include "kernels/gemm/openblas.h"

#include <cblas.h>
#include <omp.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"
#include "core/processors.h"

extern "C" {  // OpenBLAS exports them without a declaration
void* blas_memory_alloc(int);
void blas_memory_free(void*);
}

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
  thread_local bool is_pinned = false;
  if (!is_pinned) omp_set_num_threads(1);  // the OpenMP flavour asks OpenMP for its threads, thread by thread
  const auto transpose = [](const Matrix<Real>& x) { return x.transposed ? CblasTrans : CblasNoTrans; };
  cblas(CblasRowMajor, transpose(g.a), transpose(g.b), narrow(g.c.rows), narrow(g.c.cols), narrow(g.a.cols),
        g.alpha, g.a.value, narrow(g.a.ld), g.b.value, narrow(g.b.ld), g.beta, g.c.value, narrow(g.c.ld));
  if (!std::exchange(is_pinned, true)) unbind_thread();
}

// OpenBLAS's buffer for one thread, the same in every build for x86_64 and arm64.
constexpr std::size_t buffer_size = std::size_t{128} << 20;

bool address_space_is_limited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

void openblas_gemm(const Gemm<float>& g) { multiply(cblas_sgemm, g); }
void openblas_gemm(const Gemm<double>& g) { multiply(cblas_dgemm, g); }

void pin_openblas() {
  openblas_set_num_threads(1);
  unbind_thread();
  if (!address_space_is_limited()) return;
  // A product that finds no room for its buffer would wait for it for ever: all are mapped now, while there
  // is.
  require(
      openblas_buffers_fit(thread_count()), "memory",
      "the limit on address space (ulimit -v) leaves no room for OpenBLAS's buffers, 128 MiB for each of ",
      thread_count(), " threads; raise it, or use fewer threads");
  std::vector<void*> buffers;
  for (int thread = 0; thread < thread_count(); ++thread) buffers.push_back(blas_memory_alloc(0));
  for (void* buffer : buffers) blas_memory_free(buffer);
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
