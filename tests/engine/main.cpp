// Runs the tests: on 2 threads, unless OMP_NUM_THREADS is set.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/gemm/gemm.h"
#include "kernels/simd.h"

int main(int argc, char** argv) {
  constexpr int skipped = 77;  // ctest's SKIP_RETURN_CODE
  if (std::getenv("OMP_NUM_THREADS") == nullptr) normscope::set_thread_count(2);
  normscope::pin_openblas();
  try {
    normscope::instruction_set();
  } catch (const normscope::Error& error) {  // NORMSCOPE_ISA names a set that this machine lacks
    std::fprintf(stderr, "%s\n", error.what());
    return skipped;
  }
  return doctest::Context(argc, argv).run();
}
