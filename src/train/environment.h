// The machine and the build, on which a run's bits and speed depend.
#pragma once

#include <string>

#include "config/run_config.h"
#include "data/corpus.h"
#include "model/parameters.h"
#include "run/record.h"

namespace normscope {

// "normscope 0.1.0 (commit 93fd48b6c1), GCC 12.2.0, avx512, OpenBLAS 0.3.21 (openmp, Cooperlake)"
std::string version_text();
std::string blas_text();  // "OpenBLAS 0.3.21 (openmp, Cooperlake)"
std::string cpu_name();   // "unknown" if the kernel does not say

// The record of a run before its first step.
RunRecord new_record(const RunConfig& config, const Corpus& corpus, const ParameterLayout& layout);

// Sets the record's fields of machine and build.
void add_environment(const TrainConfig& config, RunRecord& run);

}  // namespace normscope
