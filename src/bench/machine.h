// What this machine can do, and who else uses it while a benchmark runs.
#pragma once

#include <optional>

#include "config/run_config.h"

namespace normscope {

// GFLOP/s of OpenBLAS's SGEMM with thread_count() threads: the best of 512^3, 1024^3, 2048^3 (median of 5).
double measure_sgemm_gflops();

// GFLOP/s of multiply-adds in registers with thread_count() threads: the best of 10. Of bf16: of its pairs,
// or where the processor has no instruction for them, of the floats that they are made.
double measure_peak_gflops(Precision precision);

// GB/s of y = a x + y over arrays far larger than the caches: the best of 5.
double measure_memory_rate();

// The CPU time that other programs, the kernel and a virtual machine's host take, from the construction on.
class OtherCpuTime {
 public:
  OtherCpuTime() : start_(now()) {}
  std::optional<double> share() const;  // of all cores' time; nothing where the system does not tell

 private:
  struct Ticks {
    double all = 0, others = 0;
  };
  static Ticks now();

  Ticks start_;
};

}  // namespace normscope
