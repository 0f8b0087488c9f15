// A sweep's runs: their processes, their progress, the time that is left, and the sweep's table.
#pragma once

#include <sys/types.h>

#include <set>

#include "config/sweep.h"
#include "core/stopwatch.h"
#include "dist/communicator.h"
#include "io/file.h"
#include "run/record.h"

namespace normscope {

constexpr const char* table_file = "summary.csv";
constexpr const char* status_failed = "failed";  // a run without a usable result, as a sweep calls it

struct RunTime {
  double expected = 0;  // seconds, by its arithmetic; one common factor may be wrong
  double before = 0;    // the share of its steps, 0..1, that earlier sweeps did
  double now = 0;       // the share that is done
};

struct Job {
  const SweepRun* run;
  std::string folder;
  RunTime time;
  std::string status;  // done, diverged, failed, interrupted; empty: still to do

  double share_of(Index steps) const;  // steps over the run's train.steps, 0..1
};

// The names of the jobs with that status.
std::set<std::string> with_status(std::string_view status, const std::vector<Job>& jobs);

// The default of --jobs: one run a core, as long as all of them need half of the free memory at most.
Index jobs_at_once(const Sweep& sweep, Index shards, Index cores);

// Every `shards`-th run, from number `shard` on (from 1). Usage Error if a run's folder would have the name
// of a file.
std::vector<Job> plan(const Sweep& sweep, const std::filesystem::path& out, Index shard, Index shards);

// Sets the status of runs that an earlier sweep finished, and scales the expected times of all by theirs.
// Usage Error for a folder that holds a run of another config. A folder that cannot be read is left to the
// run, which resumes it or reports the error.
void mark_finished(std::vector<Job>& jobs);

// The last row of a run's metrics: "step 120/300  loss 2.6113". Updates the run's time.
std::string progress_of(Job& job);

// Seconds until all runs are done, `at_once` at a time, after `elapsed` seconds of work on them. The pace is
// the work done since, running jobs included, over the time it took; before any is done, the expected one.
double seconds_left(const std::vector<Job>& jobs, double elapsed, Index at_once);

// summary.csv in the sweep's folder, empty if there is none. Usage Error if the file is no sweep's table.
std::string read_existing_table(const std::filesystem::path& out);

// Writes summary.csv from the runs' folders: a row for every run that has begun or failed. `failed`: names of
// the runs that failed here. Other shards write the same table (`sharded`): their failed runs keep their
// rows.
void write_table(const Sweep& sweep, const std::filesystem::path& out, const std::set<std::string>& failed,
                 bool sharded);

// The process of a job: this program run again with other arguments. SIGTERM ends it when its parent is
// killed.
class ChildProcess {
 public:
  ChildProcess(Job& of, const std::vector<std::string>& arguments);  // without argv[0]
  ChildProcess(const ChildProcess&) = delete;
  ~ChildProcess();  // terminates it, and waits for its end

  // The exit code once it has ended (128 + the signal that ended it); nothing while it runs.
  std::optional<int> poll();

  // Sends SIGTERM: it saves its state and ends. Sent once, since a second one would end it unsaved.
  void terminate();

  std::string errors() const;  // the last kilobytes of its stderr

  Job& job;
  const Stopwatch clock;

 private:
  pid_t id_ = 0;  // 0: it has ended
  bool terminated_ = false;
  FileDescriptor stderr_;  // a file in memory
};

}  // namespace normscope
