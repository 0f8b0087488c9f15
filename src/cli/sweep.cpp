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
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "cli/child_process.h"
#include "cli/commands.h"
#include "cli/compare.h"
#include "cli/session.h"
#include "cli/sweep_jobs.h"
#include "cli/terminal.h"
#include "config/dump.h"
#include "core/error.h"
#include "core/hash.h"
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

// What a rank gives its runs.
struct Lanes {
  Index at_once;
  int threads;  // of each run
};

// Ranks run the same loop and hand out the same runs: whoever has a free lane takes the next. Each keeps its
// own children; what ends anywhere, all hear of, and the first one writes down.
class SweepRunner {
 public:
  // `write_table` is called, at the first rank, whenever a run has ended.
  SweepRunner(const Sweep& sweep, std::vector<Job>& jobs, Lanes lanes, Communicator& ranks,
              std::function<void()> write_table)
      : sweep_(sweep),
        jobs_(jobs),
        threads_(lanes.threads),
        ranks_(ranks),
        free_(ranks.gather(static_cast<std::uint64_t>(lanes.at_once))),
        at_once_(std::accumulate(free_.begin(), free_.end(), Index{0})),
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
    while (!under_way_.empty() || (!waiting_.empty() && !stopping)) {
      if (ranks_.any(stop.load()) && !stopping) {
        stopping = true;
        table_.clear();
        if (ranks_.is_first())
          std::cout << "stopping: " << under_way_.size() << " running save their state" << std::endl;
        for (Running& one : running_) one.process.terminate();
      }
      while (!stopping && !waiting_.empty() && start()) {
      }
      hear_of_ended();
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

  // Gives the next run to the rank with the most free lanes. False: there is none.
  bool start() {
    const auto freest = std::ranges::max_element(free_);
    if (*freest == 0) return false;
    --*freest;
    Job& job = *waiting_.front();
    waiting_.pop_front();
    under_way_.push_back(&job);
    if (freest - free_.begin() == ranks_.rank()) run_here(job);
    return true;
  }

  void run_here(Job& job) {
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

  // One run of each rank that has ended.
  void hear_of_ended() {
    struct {
      Index job = -1, code = 0;
      double seconds = 0;
    } ended;
    std::string errors;
    for (auto one = running_.begin(); one != running_.end(); ++one) {
      const std::optional<int> code = one->process.poll();
      if (!code) continue;
      ended = {one->job - jobs_.data(), *code, one->clock.seconds()};
      errors = one->process.errors();
      running_.erase(one);
      break;
    }
    const std::vector<std::uint64_t> has_ended = ranks_.gather(ended.job >= 0);
    for (int r = 0; r < ranks_.size(); ++r) {
      if (has_ended[static_cast<std::size_t>(r)] == 0) continue;
      auto of_rank = ended;
      std::string its_errors = errors;
      ranks_.broadcast(&of_rank, sizeof of_rank, 1, r);
      ranks_.broadcast(its_errors, r);
      ++free_[static_cast<std::size_t>(r)];
      Job& job = jobs_[static_cast<std::size_t>(of_rank.job)];
      std::erase(under_way_, &job);
      if (ranks_.is_first()) finish(job, static_cast<int>(of_rank.code), its_errors, of_rank.seconds);
    }
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
    for (Job* job : under_way_) lines.push_back(row_of(*job, "running", progress_of(*job)));
    std::string last = text(with_status(status_done, jobs_).size(), " of ", jobs_.size(), " done");
    for (const char* status : {status_diverged, "failed", status_interrupted}) {
      if (const auto names = with_status(status, jobs_); !names.empty())
        last += text(", ", names.size(), ' ', status);
    }
    last += text(", ", under_way_.size(), " running, ", waiting_.size(), " waiting, about ",
                 duration_text(seconds_left(jobs_, clock_.seconds(), at_once_)), " left");
    lines.push_back(std::move(last));
    table_.show(lines);
  }

  const Sweep& sweep_;
  std::vector<Job>& jobs_;
  const int threads_;
  Communicator& ranks_;
  std::vector<std::uint64_t> free_;  // lanes of each rank
  const Index at_once_;              // of all ranks
  std::function<void()> write_table_;
  std::deque<Job*> waiting_;
  std::vector<Job*> under_way_;  // anywhere
  std::list<Running> running_;   // here
  Stopwatch clock_;
  ProgressDisplay table_{!ranks_.is_first(), std::chrono::milliseconds(500)};
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
  Communicator& ranks = line.ranks();
  const auto [shard, shards] = ranks.together([&] { return shard_of(line); });
  const Sweep sweep = ranks.together([&] {
    return load_sweep(line.positionals()[0],
                      {line.all_of("set"), line.integer_of("seeds", 1, Index{max_runs}, 0)});
  });
  std::uint64_t hash = fnv1a_basis;
  for (const SweepRun& run : sweep.runs) hash = fnv1a(dump_text(run.config), hash);
  require_same(ranks, "sweep", hash);
  const fs::path out = line.text_of("out").value_or("runs/" + sweep.name);
  const int cores = share_cores(ranks, {.most = resolve_threads(0, 0)}).most;
  const Index at_once =
      ranks.together([&] { return line.integer_of("jobs", 1, 1024, jobs_at_once(sweep, shards, cores)); });
  const int threads = std::max(1, cores / static_cast<int>(at_once));
  set_thread_count(threads);  // what the expected times are for
  std::vector<Job> jobs = ranks.together([&] { return plan(sweep, out, shard, shards); });
  if (line.has("dry-run")) {
    if (!ranks.is_first()) return Exit::ok;
    own_table(out);
    find_finished(jobs);
    print_plan(sweep, jobs, at_once * ranks.size());
    return Exit::ok;
  }
  const auto lock = take_folder(out, shards == 1 ? "" : text(shard, "-of-", shards), ranks, jobs);
  if (ranks.is_first()) {
    const auto finished = std::ranges::count_if(jobs, [](const Job& job) { return !job.status.empty(); });
    std::cout << sweep.name << ": " << jobs.size() << (jobs.size() == 1 ? " run" : " runs");
    if (finished > 0) std::cout << ", " << finished << " of them finished already";
    std::cout << "; " << at_once << " at a time, " << threads << (threads == 1 ? " thread" : " threads")
              << " each";
    if (ranks.size() > 1) std::cout << ", in each of " << ranks.size() << " ranks";
    std::cout << "; in " << escape_controls(out.string()) << std::endl;
  }

  const auto write = [&, sharded = shards > 1] {
    write_table(sweep, out, with_status("failed", jobs), sharded);
  };
  const bool whole = SweepRunner(sweep, jobs, {at_once, threads}, ranks, write).run(stop_on_signals());
  if (!ranks.is_first()) return Exit::ok;
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
                mpi_option,
                {"dry-run", "", "list the runs and the expected time; run nothing"}},
    .run = run};

}  // namespace normscope
