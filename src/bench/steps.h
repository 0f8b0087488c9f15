// Training steps of a config, timed on random text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace normscope {

// One kind of work in the median step.
struct OpTime {
  std::string name;  // an op, "optimiser", or "rest": the batch, clearing gradients, their norm
  double share = 0;  // of the step
  double ms = 0, forward_ms = 0, backward_ms = 0;
  std::optional<double> gflops{}, gb_per_s{};  // whichever bounds it
};

// Steps of one precision with one number of threads.
struct Measurement {
  Precision precision;
  int threads;
  double step_ms, tokens_per_s, gflops;          // of the median step
  double log_overhead;                           // extra time with every layer logged, as a share of it
  double peak_mb;                                // of the process so far
  std::vector<OpTime> ops;                       // the longest first
  double sgemm_gflops = 0, memory_gb_per_s = 0;  // of the machine with these threads

  double share() const { return gflops / sgemm_gflops; }
};

// Both precisions, the config's own first, each with one thread and with all.
std::vector<Measurement> measure(RunConfig config, Index steps);

}  // namespace normscope
