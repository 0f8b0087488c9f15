// normscope sweep SWEEP.json: every run of a grid, several at a time; what is finished is not done again.
#include "config/sweep.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <list>
#include <sstream>
#include <thread>

#include "cli/child_process.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "cli/sweep_time.h"
#include "cli/terminal.h"
#include "config/dump.h"
#include "core/error.h"
#include "core/parallel.h"
#include "io/csv.h"
#include "io/utf8.h"
#include "model/parameters.h"
#include "train/environment.h"
#include "train/run_folder.h"
#include "train/run_record.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto glance_interval = std::chrono::milliseconds(50);
constexpr Index usual_vocabulary = 80;  // for the estimate of a run's time
constexpr int most_tries = 20;          // of a run whose folder another process is still leaving

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A run of the sweep and how far it has come.
struct Job {
  const SweepRun* run;
  std::string folder;
  RunTime time;
  std::string status;  // done, diverged, failed; empty: still to do
  std::string error;   // of a failed one
  int tries = 0;
};

std::vector<Job> plan(const Sweep& sweep, const fs::path& out, Index shard, Index shards) {
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < sweep.runs.size(); ++i) {
    if (static_cast<Index>(i) % shards != shard - 1) continue;
    const SweepRun& run = sweep.runs[i];
    const ParameterLayout layout(run.config.model, usual_vocabulary);
    jobs.push_back(
        {&run, (out / run.name).string(), {expected_seconds(run.config, layout), 0, 0}, "", "", 0});
  }
  return jobs;
}

// The share of its steps that so many are.
double steps_done(Index steps, const Job& job) {
  return std::min(1.0, static_cast<double>(steps) / static_cast<double>(job.run->config.train.steps));
}

// Marks the runs that an earlier sweep finished, and scales what is expected of all by what those took. A
// folder that holds a run of another config is refused.
void find_finished(std::vector<Job>& jobs) {
  std::string lines;
  double expected = 0, taken = 0;
  for (Job& job : jobs) {
    if (!fs::exists(fs::path(job.folder) / config_file)) continue;
    const RunRecord record = read_run(job.folder);
    std::string differences;
    for (const Difference& d : keys_that_differ(record.config, job.run->config)) {
      if (!d.may_change_on_resume)
        differences += text(differences.empty() ? "" : ", ", d.key, " (", d.values, ")");
    }
    if (!differences.empty()) {
      lines += text(lines.empty() ? "" : "\n", "[sweep] ", printable(job.folder),
                    " holds a run of another config: ", differences,
                    "; remove it, or choose another folder with --out DIR");
    }
    const bool whole = record.steps >= job.run->config.train.steps;
    if ((record.status == "done" && whole) || record.status == "diverged") job.status = record.status;
    job.time.before = job.time.now = job.status.empty() ? steps_done(record.steps, job) : 1;
    if (job.status == "done" && record.seconds) {
      expected += job.time.expected;
      taken += *record.seconds;
    }
  }
  if (!lines.empty()) throw Error(Exit::usage, lines);
  for (Job& job : jobs) job.time.expected *= taken > 0 ? taken / expected : 1;
}

// A row for every run that has something to say.
void write_summary_csv(const Sweep& sweep, const fs::path& out, const std::vector<Job>& jobs) {
  const fs::path file = out / "summary.csv", temporary = out / ("summary.csv." + std::to_string(::getpid()));
  std::vector<std::string> columns = {"name"};
  columns.insert(columns.end(), sweep.varied_keys.begin(), sweep.varied_keys.end());
  columns.insert(columns.end(), {"status", "final_train_loss", "best_val_loss", "final_val_loss",
                                 "grad_first_last", "growth", "steps", "seconds", "tokens_per_s"});
  {
    CsvWriter csv(temporary.string(), columns, CsvWriter::Open::create);
    for (const SweepRun& run : sweep.runs) {
      const std::string folder = (out / run.name).string();
      const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const Job& j) { return j.run == &run; });
      const bool failed = job != jobs.end() && job->status == "failed";
      RunRecord record;
      record.status = "failed";
      if (!failed) {
        if (!fs::exists(fs::path(folder) / summary_file)) continue;
        record = read_run(folder);
        if (record.status != "done" && record.status != "diverged") continue;
      }
      csv.cell(run.name);
      for (const std::string& key : sweep.varied_keys) csv.cell(value_text(run.config, key));
      csv.cell(record.status);
      for (const auto& figure : {record.final_train_loss, record.best_val_loss, record.final_val_loss,
                                 record.grad_first_last, record.growth})
        csv.cell(figure);
      failed ? csv.cell(std::nullopt) : csv.cell(record.steps);
      csv.cell(record.seconds);
      csv.cell(record.tokens_per_s);
      csv.end_row();
    }
    csv.flush();
  }
  fs::rename(temporary, file);
}

// The last row of a run's metrics: "step 120/300  loss 2.6113". Notes how far it is.
std::string progress_of(Job& job) {
  std::ifstream file(fs::path(job.folder) / metrics_file, std::ios::ate);
  const auto size = static_cast<std::streamoff>(file.tellg());
  if (!file || size <= 0) return "starting";
  file.seekg(std::max<std::streamoff>(0, size - 400));
  std::string line, last, before;
  while (std::getline(file, line)) before = std::exchange(last, line);
  std::vector<std::string> cells;
  std::istringstream row(last);
  for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
  if (cells.size() < 3 || cells[0] == "step") return "starting";
  job.time.now = steps_done(std::strtoll(cells[0].c_str(), nullptr, 10), job);
  return text("step ", cells[0], "/", job.run->config.train.steps, "  loss ", cells[2].substr(0, 6));
}

class SweepRunner {
 public:
  SweepRunner(const Sweep& sweep, const fs::path& out, std::vector<Job>& jobs, Index at_once, int threads)
      : sweep_(sweep), out_(out), jobs_(jobs), at_once_(at_once), threads_(threads) {
    for (Job& job : jobs) {
      if (job.status.empty()) waiting_.push_back(&job);
    }
  }

  // Until all are done or `stop` is true; then children save their state and end. False: stopped.
  bool run(const std::atomic<bool>& stop) {
    bool stopping = false;
    while (!running_.empty() || (!waiting_.empty() && !stopping)) {
      if (stop.load() && !stopping) {
        stopping = true;
        table_.clear();
        std::cout << "stopping: " << running_.size() << " running save their state" << std::endl;
        for (const Running& one : running_) one.process.terminate();
      }
      while (!stopping && !waiting_.empty() && static_cast<Index>(running_.size()) < at_once_) start();
      for (auto one = running_.begin(); one != running_.end();) {
        const std::optional<int> code = one->process.poll();
        if (!code) {
          ++one;
          continue;
        }
        finish(*one->job, *code, one->process.errors(), seconds_since(one->start));
        one = running_.erase(one);
      }
      show();
      std::this_thread::sleep_for(glance_interval);
    }
    table_.clear();
    return !stopping;
  }

 private:
  struct Running {
    Job* job;
    ChildProcess process;
    Clock::time_point start = Clock::now();
  };

  void start() {
    Job& job = *waiting_.front();
    waiting_.pop_front();
    std::vector<std::string> arguments = {
        "train",     sweep_.base.string(),    "--out", job.folder, "--resume", "--quiet",
        "--threads", std::to_string(threads_)};
    for (const std::string& set : job.run->sets) {
      arguments.push_back("--set");
      arguments.push_back(set);
    }
    running_.push_back({&job, ChildProcess(arguments)});
  }

  void finish(Job& job, int code, const std::string& errors, double seconds) {
    if (code == static_cast<int>(Exit::interrupted)) return;  // saved: the next sweep goes on with it
    if (code == static_cast<int>(Exit::failure) && errors.starts_with("[lock]") && ++job.tries < most_tries) {
      // An interrupted sweep's run that is still saving its state.
      waiting_.push_back(&job);
      std::this_thread::sleep_for(10 * glance_interval);
      return;
    }
    job.status = code == 0 ? "done" : code == static_cast<int>(Exit::diverged) ? "diverged" : "failed";
    job.time.now = 1;
    write_summary_csv(sweep_, out_, jobs_);
    std::string result;
    if (job.status == "failed") {
      job.error = errors.substr(0, errors.find_last_not_of('\n') + 1);
      if (job.error.empty()) job.error = text("ended with exit code ", code);
      result = job.error;
      job.time.expected = 0;  // tells nothing of the pace
    } else {
      const RunRecord record = read_run(job.folder);
      if (record.final_val_loss) result = "validation " + fixed(*record.final_val_loss, 4);
      if (job.status == "diverged") {
        result = text("after ", record.steps, " steps");
        job.time.expected *= steps_done(record.steps, job);
      }
    }
    table_.say(text(job.status, std::string(10 - job.status.size(), ' '), printable(job.run->name), "  ",
                    printable(result), "  ", duration_text(seconds)));
  }

  void show() {
    if (!table_.due()) return;
    std::vector<std::string> lines;
    for (const Running& one : running_) {
      lines.push_back(text("running   ", printable(one.job->run->name), "  ", progress_of(*one.job)));
    }
    const auto count = [&](const char* status) {
      return std::count_if(jobs_.begin(), jobs_.end(), [&](const Job& job) { return job.status == status; });
    };
    std::string last = text(count("done"), " of ", jobs_.size(), " done");
    if (const auto n = count("diverged"); n > 0) last += text(", ", n, " diverged");
    if (const auto n = count("failed"); n > 0) last += text(", ", n, " failed");
    last += text(", ", running_.size(), " running, ", waiting_.size(), " waiting, about ",
                 duration_text(seconds_left(times(), seconds_since(start_), at_once_)), " left");
    lines.push_back(std::move(last));
    table_.show(lines);
  }

  std::vector<RunTime> times() const {
    std::vector<RunTime> all;
    for (const Job& job : jobs_) all.push_back(job.time);
    return all;
  }

  const Sweep& sweep_;
  const fs::path& out_;
  std::vector<Job>& jobs_;
  Index at_once_;
  int threads_;
  std::deque<Job*> waiting_;
  std::list<Running> running_;
  Clock::time_point start_ = Clock::now();
  ProgressTable table_;
};

void print_plan(const Sweep& sweep, const std::vector<Job>& jobs, Index at_once) {
  std::vector<RunTime> times;
  for (const Job& job : jobs) {
    std::cout << (job.status.empty() ? "to do     "
                                     : text(job.status, std::string(10 - job.status.size(), ' ')))
              << printable(job.run->name) << "  " << duration_text(job.time.expected) << '\n';
    times.push_back(job.time);
  }
  std::cout << '\n'
            << sweep.name << ": " << jobs.size() << (jobs.size() == 1 ? " run" : " runs") << ", about "
            << duration_text(seconds_left(times, 0, at_once)) << " with " << at_once << " at a time\n";
}

// "2/4": shard 2 of 4.
std::pair<Index, Index> shard_of(const CommandLine& line) {
  const std::string given = line.text_of("shard").value_or("1/1");
  Index shard = 0, shards = 0;
  char slash = 0;
  std::istringstream in(given);
  if (!(in >> shard >> slash >> shards) || slash != '/' || !in.eof() || shard < 1 || shards < shard) {
    refuse("sweep", "--shard: got '", printable(given), "'; expected I/N with I from 1 to N, such as 2/4");
  }
  return {shard, shards};
}

}  // namespace

int sweep_command(int argc, char** argv) {
  CommandLine line(
      "sweep",
      "Every run of a grid and of named cases, with every seed. Run it again after a stop of any kind:\n"
      "it finishes what is missing. A diverged run is a result.",
      "SWEEP.json");
  line.option("out", "DIR", "folder of the runs' folders (default: runs/<name>)");
  line.option("jobs", "N", "runs at a time, each on its share of the cores (default: 1)");
  line.option("shard", "I/N", "only every N-th run, from the I-th: for job arrays that share a folder");
  line.flag("dry-run", "list the runs and the expected time; run nothing");
  if (!line.parse(argc, argv, 1, 1)) return 0;
  const Index at_once = line.integer_of("jobs", 1, 1024).value_or(1);
  const auto [shard, shards] = shard_of(line);

  const Sweep sweep = load_sweep(line.positionals()[0]);
  const fs::path out = line.text_of("out").value_or("runs/" + sweep.name);
  set_thread_count(resolve_threads(0, 0));  // all there are, unless the environment says otherwise
  const int threads = std::max(1, thread_count() / static_cast<int>(at_once));
  set_thread_count(threads);  // what the expected times are for
  std::vector<Job> jobs = plan(sweep, out, shard, shards);
  if (line.has("dry-run")) {
    find_finished(jobs);
    print_plan(sweep, jobs, at_once);
    return static_cast<int>(Exit::ok);
  }
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail("sweep", "could not create ", printable(out.string()), ": ", error.message());
  const FolderLock lock(out.string(), shards == 1 ? "" : text(shard, "-of-", shards));
  find_finished(jobs);
  const auto finished =
      std::count_if(jobs.begin(), jobs.end(), [](const Job& job) { return !job.status.empty(); });
  std::cout << sweep.name << ": " << jobs.size() << (jobs.size() == 1 ? " run" : " runs");
  if (finished > 0) std::cout << ", " << finished << " of them finished already";
  std::cout << "; " << at_once << " at a time, " << threads << (threads == 1 ? " thread" : " threads")
            << " each; in " << printable(out.string()) << std::endl;

  const bool whole = SweepRunner(sweep, out, jobs, at_once, threads).run(stop_on_signals());
  write_summary_csv(sweep, out, jobs);
  if (!whole) {
    std::cerr << "interrupted; go on with the same command\n";
    return static_cast<int>(Exit::interrupted);
  }
  std::vector<std::string> words = {"compare"};
  for (const Job& job : jobs) {
    if (job.status != "failed") words.push_back(job.folder);
  }
  if (words.size() > 1) {
    std::cout << '\n';
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    compare_command(static_cast<int>(arguments.size()), arguments.data());
  }
  std::cout << "\nin " << printable((out / "summary.csv").string()) << '\n';
  const auto failed =
      std::count_if(jobs.begin(), jobs.end(), [](const Job& job) { return job.status == "failed"; });
  if (failed > 0) {
    fail("sweep", failed, " of ", jobs.size(), failed == 1 ? " runs failed" : " runs failed",
         "; the lines above say why; the same command tries them again");
  }
  return static_cast<int>(Exit::ok);
}

}  // namespace normscope
