// A sweep's runs: which are to do, how far each has come, how long all will still take, and the table of
// them.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/sweep.h"
#include "dist/communicator.h"
#include "io/file.h"
#include "run/read.h"

namespace normscope {

constexpr const char* table_file = "summary.csv";

// A run as far as time goes.
struct RunTime {
  double expected = 0;  // seconds, by its arithmetic; all runs may be off by one factor
  double before = 0;    // the share of its steps that was done when this sweep began, 0..1
  double now = 0;       // the share that is done
};

struct Job {
  const SweepRun* run;
  std::string folder;
  RunTime time;
  std::string status;  // done, diverged, failed, interrupted; empty: still to do

  double share_of(Index steps) const;  // of all its steps, 0..1
};

// The jobs of that status, by name.
std::set<std::string> with_status(std::string_view status, const std::vector<Job>& jobs);

// How many runs to do at a time: one a core, while all of them take half of the free memory at most.
Index jobs_at_once(const Sweep& sweep, Index shards, Index cores);

// Every `shards`-th run, from number `shard` on (from 1). Usage Error where a run's folder would have the
// name of a file.
std::vector<Job> plan(const Sweep& sweep, const std::filesystem::path& out, Index shard, Index shards);

// Marks the runs that an earlier sweep finished, and scales what is expected of all by what those took. A
// folder that holds a run of another config is refused; one that cannot be read is left to the run itself,
// which goes on with it or says what is wrong.
void find_finished(std::vector<Job>& jobs);

// Takes the sweep's folder for the first rank, for the part of that name or for all, and marks the runs that
// are finished at every rank.
std::optional<FolderLock> take_folder(const std::filesystem::path& out, const std::string& part,
                                      Communicator& ranks, std::vector<Job>& jobs);

// The last row of a run's metrics: "step 120/300  loss 2.6113". Notes how far it is.
std::string progress_of(Job& job);

// Seconds until all runs are done, `at_once` at a time, after `elapsed` seconds of work on them. The pace is
// what has been done since, running ones included, over the time it took; before anything is, what was
// expected.
double seconds_left(const std::vector<Job>& jobs, double elapsed, Index at_once);

// summary.csv of the sweep's folder. Usage Error if there is a file by that name that no sweep wrote.
std::string own_table(const std::filesystem::path& out);

// Replaces the table by one of what the runs' folders hold now: a row for every run that has begun, or failed
// to. `failed`: names of those that failed here; runs that failed in another shard, which alone knows of it,
// keep their rows. `sharded`: other shards may write the table too.
void write_table(const Sweep& sweep, const std::filesystem::path& out, const std::set<std::string>& failed,
                 bool sharded);

}  // namespace normscope
