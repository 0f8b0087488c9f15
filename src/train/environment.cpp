#include "train/environment.h"

#include <commit.h>
#include <unistd.h>

#include <fstream>

#include "core/error.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "kernels/gemm/openblas.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// "glibc 2.36", which computes cosines and logarithms
std::string libc_name() {
  char name[100] = "unknown";  // with another C library it stays that
  confstr(_CS_GNU_LIBC_VERSION, name, sizeof name);
  return name;
}

}  // namespace

std::string blas_text() {
  const BlasInfo blas = blas_info();
  return text("OpenBLAS ", blas.version, " (", blas.flavour, ", ", blas.kernel, ")");
}

std::string version_text() {
  return text("normscope ", NORMSCOPE_VERSION, " (commit ", NORMSCOPE_COMMIT, "), ", NORMSCOPE_COMPILER, ", ",
              isa_name(), ", ", blas_text());
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

RunRecord new_record(const RunConfig& config, const Corpus& corpus, const ParameterLayout& layout) {
  RunRecord record;
  record.config = config;
  record.params = layout.count();
  record.vocab = corpus.vocab.size();
  record.corpus_hash = hex(corpus.hash);
  return record;
}

void add_environment(const TrainConfig& config, RunRecord& run) {
  const BlasInfo blas = blas_info();
  run.peak_rss_mb = peak_rss_bytes() / 0x1p20;
  run.threads = thread_count();
  run.precision = name_of(config.precision);
  run.gemm = name_of(config.gemm);
  run.blas_flavour = blas.flavour;
  run.blas_version = blas.version;
  run.blas_kernel = blas.kernel;
  run.cpu = cpu_name();
  run.isa = isa_name();
  run.compiler = NORMSCOPE_COMPILER;
  run.libc = libc_name();
  run.version = NORMSCOPE_VERSION;
  run.commit = NORMSCOPE_COMMIT;
}

}  // namespace normscope
