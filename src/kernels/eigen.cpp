#include "kernels/eigen.h"

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/gemm/openblas.h"

// Of LAPACK, which OpenBLAS holds; matrices by columns, so that a column of eigenvectors is a row here.
extern "C" void dsyevd_(const char* job, const char* part, const int* n, double* a, const int* stride,
                        double* values, double* work, const int* work_size, int* whole_work,
                        const int* whole_size, int* failed);

namespace normscope {

std::vector<double> eigenvalues(Index size, double* a, bool want_vectors) {
  constexpr Index most = 32'000;  // LAPACK counts its work in int
  require(size >= 1 && size <= most, "eigenvalues", "of ", size, " rows; expected 1 to ", most);
  const int n = static_cast<int>(size);
  const int work_size = 1 + 6 * n + (want_vectors ? 2 * n * n : 0), whole_size = 3 + 5 * n;
  std::vector<double> values(static_cast<std::size_t>(n)), work(static_cast<std::size_t>(work_size));
  std::vector<int> whole(static_cast<std::size_t>(whole_size));
  int failed = 0;
  pin_openblas();
  const ThreadCount serial(1);
  dsyevd_(want_vectors ? "V" : "N", "U", &n, a, &n, values.data(), work.data(), &work_size, whole.data(),
          &whole_size, &failed);
  require(failed == 0, "eigenvalues", "dsyevd returned ", failed);
  return values;
}

}  // namespace normscope
