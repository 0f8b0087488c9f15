// Setup that several commands share: threads, BLAS, signals, the corpus.
#pragma once

#include <atomic>

#include "cli/commands.h"
#include "config/run_config.h"
#include "train/checkpoint.h"

namespace normscope {

// The corpus of a config.
Corpus corpus_of(const RunConfig& config);
// The corpus of a model; prints a warning if its text has changed. Error: its vocabulary is another one.
Corpus corpus_of(const LoadedModel& model, const char* command);

struct Threads {
  int most;
  bool is_fixed = false;  // the user set the number
};

// Sets the thread count: --threads, else train.threads, else default_thread_count() or, of several processes on
// this machine, at most a share of its cores. Limits OpenBLAS to one thread in each of ours.
Threads set_up_threads(const CommandLine& line, Index config_threads, int processes = 1);

// Makes SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGPIPE set the returned flag, so that a run can save its state;
// a second SIGINT or SIGTERM ends the program at once (exit 130).
const std::atomic<bool>& stop_on_signals();

// "2 threads, avx512, OpenBLAS 0.3.21 openmp SkylakeX"
std::string machine_text(const TrainConfig& config);

}  // namespace normscope
