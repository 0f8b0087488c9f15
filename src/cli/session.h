// What several commands do before their work: threads, BLAS, the line that says what will run.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "cli/options.h"
#include "config/run_config.h"
#include "data/corpus.h"
#include "model/parameters.h"
#include "train/checkpoint.h"

namespace normscope {

// The texts that a config names, split as it says.
Corpus corpus_of(const RunConfig& config);
// Of a model, by whose vocabulary it must be encoded (Error); that it has changed is said.
Corpus corpus_of(const LoadedModel& model, const char* command);

struct Threads {
  int most;               // that may be used; in use at first: those that other programs leave
  bool is_fixed = false;  // the user says how many
  int busy_elsewhere = 0;
};

// Sets the thread count from --threads, the config, the environment, the machine; pins OpenBLAS under our
// loops.
Threads set_up_threads(const CommandLine& line, Index config_threads);

// Ranks that may run on the same cores of a machine share these out, where the user does not say how many
// threads each takes. Of several ranks none tries other numbers: it would measure what the others do.
Threads share_cores(Communicator& ranks, const Threads& threads);

// Refuses (usage Error `[what] ...`, named by the rank) ranks that have read another file than the first one.
void require_same(Communicator& ranks, const char* what, std::uint64_t hash);

// From now on SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGPIPE set the flag that this returns, so that a run is
// saved; a second SIGINT or SIGTERM ends the program at once (exit 130).
const std::atomic<bool>& stop_on_signals();

// "1 thread of 2 (other programs keep 1 busy), avx512, OpenBLAS 0.3.21 openmp SkylakeX"
std::string machine_text(const TrainConfig& config, const Threads& threads);

// Seconds that training steps are expected to take here: arithmetic over a rate that is usual for the
// instruction set.
double expected_seconds(const RunConfig& config, const ParameterLayout& layout);

}  // namespace normscope
