// The machine's measured rates, and the load by other programs during a benchmark.
#pragma once

#include <optional>

namespace normscope {

// GFLOP/s of OpenBLAS's SGEMM with thread_count() threads: the best of 512^3, 1024^3, 2048^3 (median of 5).
double measure_sgemm_gflops();

// GB/s of y = a x + y over arrays far larger than the caches: the best of 5.
double measure_memory_rate();

// The CPU time of other programs, the kernel and a virtual machine's host since the construction.
class OtherCpuTime {
 public:
  OtherCpuTime() : start_(now()) {}
  std::optional<double> share() const;  // of all cores' time; nullopt if unknown

 private:
  struct Ticks {
    double all = 0, others = 0;
  };
  static Ticks now();

  Ticks start_;
};

}  // namespace normscope
