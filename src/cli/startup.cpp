#include "cli/startup.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "kernels/gemm/openblas.h"

namespace normscope {
namespace {

// The threads that OpenBLAS prepares for when it is loaded: its environment's wish, and no more than cores.
int openblas_threads(char** environment) {
  cpu_set_t mask;
  const int cores = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
  for (const std::string_view name : {"OPENBLAS_NUM_THREADS=", "GOTO_NUM_THREADS=", "OMP_NUM_THREADS="}) {
    for (char** entry = environment; *entry != nullptr; ++entry) {
      if (!std::string_view(*entry).starts_with(name)) continue;
      if (const int threads = std::atoi(*entry + name.size()); threads > 0) return std::min(threads, cores);
    }
  }
  return cores;
}

// While it is loaded OpenBLAS maps its buffers, and where it gets none it tries again for ever (0.3.21). So
// this is called before the libraries' initialisers are, when getenv() knows nothing yet.
void require_address_space(int, char**, char** environment) {
  if (openblas_buffers_fit(openblas_threads(environment))) return;
  constexpr std::string_view message =
      "[memory] the limit on address space (ulimit -v) leaves no room for OpenBLAS's buffers, 128 MiB a "
      "thread; raise it, or lower OMP_NUM_THREADS\n";
  if (write(STDERR_FILENO, message.data(), message.size())) _exit(static_cast<int>(Exit::failure));
}

__attribute__((section(".preinit_array"),
               used)) void (*const before_libraries)(int, char**, char**) = require_address_space;

}  // namespace

void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) == -1) open("/dev/null", O_RDWR);  // takes the lowest free number, which is fd
  }
}

}  // namespace normscope
