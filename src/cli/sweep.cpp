// normscope sweep SWEEP.json: every run of a grid, several at a time; what is finished is not done again.
#include "config/sweep.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <filesystem>
#include <functional>
#include <iostream>
#include <list>
#include <set>
#include <sstream>
#include <thread>

#include "cli/child_process.h"
#include "cli/commands.h"
#include "cli/compare.h"
#include "cli/session.h"
#include "cli/sweep_jobs.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/parallel.h"
#include "core/stopwatch.h"
#include "core/text.h"
#include "io/utf8.h"
#include "run/folder.h"
#include "run/read.h"
#include "train/environment.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

constexpr auto poll_interval = std::chrono::milliseconds(50);

// Whether a child ended because a signal asked it to: with its state saved, or before there was any.
bool was_stopped(int code) {
  return code == static_cast<int>(Exit::interrupted) || code == 128 + SIGTERM || code == 128 + SIGHUP;
}

std::string row_of(const Job& job, const std::string& status, const std::string& more) {
  return text(aligned_left(status, 8), "  ", escape_controls(job.run->name), "  ", more);
}

class SweepRunner {
 public:
  // `write_table` is called whenever a run has ended.
  SweepRunner(const Sweep& sweep, std::vector<Job>& jobs, Index at_once, int threads,
              std::function<void()> write_table)
      : sweep_(sweep),
        jobs_(jobs),
        at_once_(at_once),
        threads_(threads),
        write_table_(std::move(write_table)) {
    for (Job& job : jobs) {
      if (job.status.empty()) waiting_.push_back(&job);
    }
  }

  // Where an error ends the sweep, its children save their state all the same.
  ~SweepRunner() {
    for (Running& one : running_) one.process.terminate();
  }

  // Until all are done or `stop` is true; then children save their state and end. False: stopped.
  bool run(const std::atomic<bool>& stop) {
    bool stopping = false;
    while (!running_.empty() || (!waiting_.empty() && !stopping)) {
      if (stop.load() && !stopping) {
        stopping = true;
        table_.clear();
        std::cout << "stopping: " << running_.size() << " running save their state" << std::endl;
        for (Running& one : running_) one.process.terminate();
      }
      while (!stopping && !waiting_.empty() && static_cast<Index>(running_.size()) < at_once_) start();
      for (auto one = running_.begin(); one != running_.end();) {
        const std::optional<int> code = one->process.poll();
        if (!code) {
          ++one;
          continue;
        }
        finish(*one->job, *code, one->process.errors(), one->clock.seconds());
        one = running_.erase(one);
      }
      show();
      std::this_thread::sleep_for(poll_interval);
    }
    table_.clear();
    return !stopping;
  }

 private:
  struct Running {
    Job* job;
    ChildProcess process;
    Stopwatch clock{};
  };

  void start() {
    Job& job = *waiting_.front();
    waiting_.pop_front();
    std::vector<std::string> arguments = {
        "train", sweep_.base.string(), "--out", job.folder,
        // An interrupted sweep's run may still be saving its state; or another shard has this run too.
        "--wait", "--resume", "--quiet", "--threads", std::to_string(threads_)};
    for (const std::string& set : job.run->sets) {
      arguments.push_back("--set");
      arguments.push_back(set);
    }
    running_.push_back({&job, ChildProcess(arguments)});
  }

  void finish(Job& job, int code, std::string errors, double seconds) {
    job.status = code == 0                                  ? status_done
                 : code == static_cast<int>(Exit::diverged) ? status_diverged
                 : was_stopped(code)                        ? status_interrupted
                                                            : "failed";
    std::string result;
    if (job.status == status_done || job.status == status_diverged) {
      try {
        result = result_of(job);
      } catch (const Error& error) {  // it ended well, but its folder cannot be read
        job.status = "failed";
        errors = error.what();
      }
    }
    if (job.status == "failed") {
      job.time.expected = 0;  // tells nothing of the pace
      result = errors.substr(0, errors.find_last_not_of('\n') + 1);
      if (result.empty()) result = text("ended with exit code ", code);
    }
    if (job.status != status_interrupted) job.time.now = 1;
    table_.say(row_of(job, job.status, text(escape_controls(result), "  ", duration_text(seconds))));
    write_table_();
  }

  static std::string result_of(Job& job) {
    const RunRecord record = read_run(job.folder);
    if (job.status == status_diverged) {
      job.time.expected *= job.share_of(record.steps);
      return text("after ", record.steps, " steps");
    }
    return record.final_val_loss ? "validation " + fixed(*record.final_val_loss, 4) : "";
  }

  void show() {
    if (!table_.due()) return;
    std::vector<std::string> lines;
    for (const Running& one : running_) lines.push_back(row_of(*one.job, "running", progress_of(*one.job)));
    std::string last = text(with_status(status_done, jobs_).size(), " of ", jobs_.size(), " done");
    for (const char* status : {status_diverged, "failed", status_interrupted}) {
      if (const auto names = with_status(status, jobs_); !names.empty())
        last += text(", ", names.size(), ' ', status);
    }
    last += text(", ", running_.size(), " running, ", waiting_.size(), " waiting, about ",
                 duration_text(seconds_left(jobs_, clock_.seconds(), at_once_)), " left");
    lines.push_back(std::move(last));
    table_.show(lines);
  }

  const Sweep& sweep_;
  std::vector<Job>& jobs_;
  Index at_once_;
  int threads_;
  std::function<void()> write_table_;
  std::deque<Job*> waiting_;
  std::list<Running> running_;
  Stopwatch clock_;
  ProgressDisplay table_{false, std::chrono::milliseconds(500)};
};

void print_plan(const Sweep& sweep, const std::vector<Job>& jobs, Index at_once) {
  for (const Job& job : jobs)
    std::cout << row_of(job, job.status.empty() ? "to do" : job.status, duration_text(job.time.expected))
              << '\n';
  std::cout << '\n'
            << sweep.name << ": " << jobs.size() << (jobs.size() == 1 ? " run" : " runs") << ", about "
            << duration_text(seconds_left(jobs, 0, at_once)) << " with " << at_once << " at a time\n";
}

void compare_runs(const std::vector<Job>& jobs) {
  std::vector<std::string> folders;
  for (const Job& job : jobs) {
    if (job.status == status_done || job.status == status_diverged) folders.push_back(job.folder);
  }
  if (folders.empty()) return;
  std::cout << '\n';
  print_comparison(folders);
}

// Says which runs are not finished, and how to go on.
Exit tell_unfinished(const std::vector<Job>& jobs) {
  const std::set<std::string> failed = with_status("failed", jobs);
  const std::set<std::string> interrupted = with_status(status_interrupted, jobs);
  if (!failed.empty()) {
    print_error(text("[sweep] ", failed.size(), " of ", jobs.size(),
                     " runs failed; the lines above say why; the same command tries them again"));
  }
  if (!interrupted.empty()) {
    print_error(text("[sweep] interrupted by a signal to the run itself: ", join(interrupted),
                     "; the same command goes on with what is left"));
  }
  return !interrupted.empty() ? Exit::interrupted : !failed.empty() ? Exit::failure : Exit::ok;
}

// "2/4": shard 2 of 4.
std::pair<Index, Index> shard_of(const CommandLine& line) {
  const std::string given = line.text_of("shard").value_or("1/1");
  Index shard = 0, shards = 0;
  char slash = 0;
  std::istringstream in(given);
  if (!(in >> shard >> slash >> shards) || slash != '/' || !in.eof() || shard < 1 || shards < shard) {
    refuse("sweep", "--shard: got '", escape_controls(given),
           "'; expected I/N with I from 1 to N, such as 2/4");
  }
  return {shard, shards};
}

Exit run(const CommandLine& line) {
  const auto [shard, shards] = shard_of(line);

  const Sweep sweep = load_sweep(line.positionals()[0],
                                 {line.all_of("set"), line.integer_of("seeds", 1, Index{max_runs}, 0)});
  const fs::path out = line.text_of("out").value_or("runs/" + sweep.name);
  const int cores = resolve_threads(0, 0);
  const Index at_once = line.integer_of("jobs", 1, 1024, jobs_at_once(sweep, shards, cores));
  const int threads = std::max(1, cores / static_cast<int>(at_once));
  set_thread_count(threads);  // what the expected times are for
  std::vector<Job> jobs = plan(sweep, out, shard, shards);
  own_table(out);  // refuses somebody else's before anything is run
  if (line.has("dry-run")) {
    find_finished(jobs);
    print_plan(sweep, jobs, at_once);
    return Exit::ok;
  }
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail("sweep", "could not create ", escape_controls(out.string()), ": ", error.message());
  const FolderLock lock(out.string(), shards == 1 ? "" : text(shard, "-of-", shards));
  find_finished(jobs);
  const auto finished =
      std::count_if(jobs.begin(), jobs.end(), [](const Job& job) { return !job.status.empty(); });
  std::cout << sweep.name << ": " << jobs.size() << (jobs.size() == 1 ? " run" : " runs");
  if (finished > 0) std::cout << ", " << finished << " of them finished already";
  std::cout << "; " << at_once << " at a time, " << threads << (threads == 1 ? " thread" : " threads")
            << " each; in " << escape_controls(out.string()) << std::endl;

  const auto write = [&, sharded = shards > 1] {
    write_table(sweep, out, with_status("failed", jobs), sharded);
  };
  const bool whole = SweepRunner(sweep, jobs, at_once, threads, write).run(stop_on_signals());
  write();
  if (!whole) {
    std::cerr << "interrupted; go on with the same command\n";
    return Exit::interrupted;
  }
  compare_runs(jobs);
  std::cout << "\nin " << escape_controls((out / table_file).string()) << '\n';
  return tell_unfinished(jobs);
}

}  // namespace

const Command sweep_command = {
    .name = "sweep",
    .arguments = "SWEEP.json",
    .purpose = "a grid of runs, side by side; run again, it finishes what is missing",
    .details =
        "Every point of the grid and every named case runs with every seed. A diverged run is a result.",
    .options = {{"set", "KEY=A,B", "of a sweep or a config: one value for all runs, several as a grid"},
                {"seeds", "N", "each with the seeds 1 ... N"},
                {"out", "DIR", "folder of the runs' folders (default: runs/<name>)"},
                {"jobs", "N",
                 "runs at a time, each on its share of the cores (default: one a core, if memory allows)"},
                {"shard", "I/N", "only every N-th run, from the I-th: for job arrays that share a folder"},
                {"dry-run", "", "list the runs and the expected time; run nothing"}},
    .run = run};

}  // namespace normscope
