// normscope sweep SWEEP.json: every run of a grid, several at a time; what is finished is not done again.
#include "config/sweep.h"

#include <algorithm>
#include <csignal>
#include <deque>
#include <functional>
#include <iostream>
#include <list>
#include <numeric>
#include <thread>

#include "cli/compare.h"
#include "cli/session.h"
#include "cli/sweep_jobs.h"
#include "cli/terminal.h"
#include "config/dump.h"
#include "core/hash.h"
#include "core/parallel.h"
#include "core/text.h"
#include "io/utf8.h"
#include "train/environment.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

constexpr auto poll_interval = std::chrono::milliseconds(10);

// Whether a child ended because of a signal: after saving its state, or before there was any.
bool was_stopped(int code) {
  return code == static_cast<int>(Exit::interrupted) || code == 128 + SIGTERM || code == 128 + SIGHUP;
}

std::string row_of(const Job& job, const std::string& status, const std::string& more) {
  return text(aligned_left(status, 8), "  ", escape_controls(job.run->name), "  ", more);
}

// All ranks execute the same loop and the same assignment of runs to ranks: the next run goes to the rank
// with the most free slots. Each rank has its own child processes. Every rank learns of every end; the first
// one writes the table.
class SweepRunner {
 public:
  // `slots`: runs at a time on this rank, on `threads` threads each. The first rank calls `write_table` after
  // the end of each run.
  SweepRunner(const Sweep& sweep, std::vector<Job>& jobs, Index slots, int threads, Communicator& ranks,
              std::function<void()> write_table)
      : sweep_(sweep),
        jobs_(jobs),
        threads_(threads),
        ranks_(ranks),
        free_slots_(ranks.gather(slots)),
        all_slots_(std::accumulate(free_slots_.begin(), free_slots_.end(), Index{0})),
        write_table_(std::move(write_table)) {
    for (Job& job : jobs) {
      if (job.status.empty()) waiting_.push_back(&job);
    }
  }

  // If an error ends the sweep, its children still save their state.
  ~SweepRunner() {
    for (ChildProcess& child : children_) child.terminate();
  }

  // Returns when all runs are done, or false when `stop` is true and all children have saved their state.
  bool run(const std::atomic<bool>& stop) {
    bool stopping = false;
    while (!running_.empty() || (!waiting_.empty() && !stopping)) {
      if (ranks_.any(stop.load()) && !stopping) {
        stopping = true;
        progress_.clear();
        if (ranks_.is_first())
          std::cout << "stopping: " << running_.size() << " running save their state" << std::endl;
        for (ChildProcess& child : children_) child.terminate();
      }
      while (!stopping && !waiting_.empty() && start_next()) {
      }
      collect_finished();
      show_progress();
      std::this_thread::sleep_for(poll_interval);
    }
    progress_.clear();
    return !stopping;
  }

 private:
  // Assigns the next run to the rank with the most free slots. False: there is no free slot.
  bool start_next() {
    const auto freest = std::ranges::max_element(free_slots_);
    if (*freest == 0) return false;
    --*freest;
    Job& job = *waiting_.front();
    waiting_.pop_front();
    running_.push_back(&job);
    if (freest - free_slots_.begin() != ranks_.rank()) return true;
    // --wait: an interrupted sweep's run may still be saving its state, or another shard has this run too.
    std::vector<std::string> arguments = {
        "train",     sweep_.base.string(),    "--out", job.folder, "--wait", "--resume", "--quiet",
        "--threads", std::to_string(threads_)};
    for (const std::string& set : job.run->sets) arguments.insert(arguments.end(), {"--set", set});
    children_.emplace_back(job, arguments);
    return true;
  }

  // Handles one finished run of each rank.
  void collect_finished() {
    struct {
      Index job = -1, code = 0;
      double seconds = 0;
    } ended;
    std::string errors;
    for (auto child = children_.begin(); child != children_.end(); ++child) {
      const std::optional<int> code = child->poll();
      if (!code) continue;
      ended = {&child->job - jobs_.data(), *code, child->clock.seconds()};
      errors = child->errors();
      children_.erase(child);
      break;
    }
    const std::vector<std::uint64_t> has_ended = ranks_.gather(ended.job >= 0);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      if (has_ended[rank] == 0) continue;
      auto ended_there = ended;
      std::string errors_there = errors;
      ranks_.broadcast(&ended_there, sizeof ended_there, 1, rank);
      ranks_.broadcast(errors_there, rank);
      ++free_slots_[rank];
      Job& job = jobs_[ended_there.job];
      std::erase(running_, &job);
      if (ranks_.is_first())
        finish(job, static_cast<int>(ended_there.code), errors_there, ended_there.seconds);
    }
  }

  // Sets the job's status, prints its result, and writes the table.
  void finish(Job& job, int code, std::string errors, double seconds) {
    job.status = code == 0                                  ? status_done
                 : code == static_cast<int>(Exit::diverged) ? status_diverged
                 : was_stopped(code)                        ? status_interrupted
                                                            : status_failed;
    std::string result;
    try {
      if (job.status == status_done || job.status == status_diverged) result = result_of(job);
    } catch (const Error& error) {  // exit code 0 or 3, but the run's folder cannot be read
      job.status = status_failed;
      errors = error.what();
    }
    if (job.status == status_failed) {
      job.time.expected = 0;  // its time says nothing about the pace
      result = errors.substr(0, errors.find_last_not_of('\n') + 1);
      if (result.empty()) result = text("ended with exit code ", code);
    }
    if (job.status != status_interrupted) job.time.now = 1;
    progress_.say(row_of(job, job.status, text(escape_controls(result), "  ", duration_text(seconds))));
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

  void show_progress() {
    if (!progress_.due()) return;
    std::vector<std::string> lines;
    for (Job* job : running_) lines.push_back(row_of(*job, "running", progress_of(*job)));
    std::string last = text(with_status(status_done, jobs_).size(), " of ", jobs_.size(), " done");
    for (const char* status : {status_diverged, status_failed, status_interrupted}) {
      if (const auto names = with_status(status, jobs_); !names.empty())
        last += text(", ", names.size(), ' ', status);
    }
    last += text(", ", running_.size(), " running, ", waiting_.size(), " waiting, about ",
                 duration_text(seconds_left(jobs_, clock_.seconds(), all_slots_)), " left");
    lines.push_back(std::move(last));
    progress_.show(lines);
  }

  const Sweep& sweep_;
  std::vector<Job>& jobs_;
  const int threads_;
  Communicator& ranks_;
  std::vector<std::uint64_t> free_slots_;  // of each rank
  const Index all_slots_;                  // of all ranks together
  std::function<void()> write_table_;
  std::deque<Job*> waiting_;
  std::vector<Job*> running_;         // on any rank
  std::list<ChildProcess> children_;  // on this rank
  Stopwatch clock_;
  ProgressDisplay progress_{!ranks_.is_first(), std::chrono::milliseconds(500)};
};

void print_plan(const Sweep& sweep, const std::vector<Job>& jobs, Index at_once) {
  for (const Job& job : jobs)
    std::cout << row_of(job, job.status.empty() ? "to do" : job.status, duration_text(job.time.expected))
              << '\n';
  std::cout << '\n'
            << sweep.name << ": " << counted(std::ssize(jobs), "run") << ", about "
            << duration_text(seconds_left(jobs, 0, at_once)) << " with " << at_once << " at a time\n";
}

// Compares the runs and reports those that are not finished.
Exit print_results(const std::vector<Job>& jobs, const fs::path& table) {
  std::vector<std::string> folders;
  for (const Job& job : jobs) {
    if (job.status == status_done || job.status == status_diverged) folders.push_back(job.folder);
  }
  if (!folders.empty()) {
    std::cout << '\n';
    print_comparison(folders);
  }
  std::cout << "\nin " << escape_controls(table.string()) << '\n';
  const std::set<std::string> failed = with_status(status_failed, jobs);
  const std::set<std::string> interrupted = with_status(status_interrupted, jobs);
  if (!failed.empty())
    print_error(text("[sweep] ", failed.size(), " of ", jobs.size(),
                     " runs failed; the lines above say why; the same command tries them again"));
  if (!interrupted.empty())
    print_error(text("[sweep] interrupted by a signal to the run itself: ", join(interrupted),
                     "; the same command goes on with what is left"));
  return !interrupted.empty() ? Exit::interrupted : !failed.empty() ? Exit::failure : Exit::ok;
}

// "2/4": shard 2 of 4.
std::pair<Index, Index> shard_of(const CommandLine& line) {
  const std::string given = line.text_of("shard").value_or("1/1");
  Index shard = 0, shards = 0;
  char slash = 0;
  std::istringstream in(given);
  if (!(in >> shard >> slash >> shards) || slash != '/' || !in.eof() || shard < 1 || shards < shard)
    refuse("sweep", "--shard: got '", escape_controls(given),
           "'; expected I/N with I from 1 to N, such as 2/4");
  return {shard, shards};
}

// Locks the sweep's folder, or the named part of it, on the first rank; marks finished runs on all ranks.
std::optional<FolderLock> lock_folder(const fs::path& out, const std::string& part, Communicator& ranks,
                                      std::vector<Job>& jobs) {
  auto lock = ranks.together([&] {
    std::optional<FolderLock> own;  // the first rank's
    if (!ranks.is_first()) return own;
    read_existing_table(out);  // fails before any run if the file is no sweep's table
    std::error_code error;
    fs::create_directories(out, error);
    if (error) fail("sweep", "could not create ", escape_controls(out.string()), ": ", error.message());
    own.emplace(out.string(), part);
    mark_finished(jobs);
    return own;
  });
  for (Job& job : jobs) ranks.broadcast(job.status);
  return lock;
}

Exit run(const CommandLine& line) {
  Communicator& ranks = line.ranks();
  const std::pair part = ranks.together([&] { return shard_of(line); });
  const Index shard = part.first, shards = part.second;
  const Sweep sweep = ranks.together([&] {
    const std::string& file = line.positionals()[0];
    const SweepOptions options{line.all_of("set"), line.number_of<Index>("seeds", 1, max_runs, 0)};
    return load_sweep(file, JsonDocument::read(file, "sweep"), options);
  });
  std::uint64_t hash = fnv1a_basis;
  for (const SweepRun& run : sweep.runs) hash = fnv1a(dump_text(run.config), hash);
  require_same(ranks, "sweep", hash);
  const fs::path out = line.text_of("out").value_or("runs/" + sweep.name);
  const int cores = share_cores(ranks, {.most = resolve_threads(0, 0)}).most;
  const Index at_once = ranks.together(
      [&] { return line.number_of<Index>("jobs", 1, 1024, jobs_at_once(sweep, shards, cores)); });
  const int threads = std::max(1, cores / static_cast<int>(at_once));
  set_thread_count(threads);  // the expected times are for that many
  std::vector<Job> jobs = ranks.together([&] { return plan(sweep, out, shard, shards); });
  if (line.has("dry-run")) {
    if (!ranks.is_first()) return Exit::ok;
    read_existing_table(out);
    mark_finished(jobs);
    print_plan(sweep, jobs, at_once * ranks.size());
    return Exit::ok;
  }
  const auto lock = lock_folder(out, shards == 1 ? "" : text(shard, "-of-", shards), ranks, jobs);
  if (ranks.is_first()) {
    const auto finished = std::ranges::count_if(jobs, [](const Job& job) { return !job.status.empty(); });
    std::cout << sweep.name << ": " << counted(std::ssize(jobs), "run")
              << (finished > 0 ? text(", ", finished, " of them finished already") : "") << "; " << at_once
              << " at a time, " << counted(threads, "thread") << " each"
              << (ranks.size() > 1 ? text(", in each of ", ranks.size(), " ranks") : "") << "; in "
              << escape_controls(out.string()) << std::endl;
  }

  const auto write = [&] { write_table(sweep, out, with_status(status_failed, jobs), shards > 1); };
  const bool whole = SweepRunner(sweep, jobs, at_once, threads, ranks, write).run(stop_on_signals());
  if (!ranks.is_first()) return Exit::ok;
  write();
  if (!whole) {
    std::cerr << "interrupted; go on with the same command\n";
    return Exit::interrupted;
  }
  return print_results(jobs, out / table_file);
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
