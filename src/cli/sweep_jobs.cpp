#include "cli/sweep_jobs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "config/dump.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/utf8.h"
#include "model/cost.h"
#include "run/folder.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

constexpr Index usual_vocabulary = 80;    // for estimates of time and memory
constexpr Index max_stderr_bytes = 4096;  // shown of a child's stderr

// The record in a run's folder. Its status is empty before the run has begun, and "failed" if it cannot be
// read.
RunRecord record_of(const std::string& folder) {
  RunRecord record;
  if (!fs::exists(fs::path(folder) / config_file)) return record;
  try {
    record = read_run(folder);
    if (record.status != status_done && record.status != status_diverged) record.status = status_interrupted;
  } catch (const Error&) {
    record.status = status_failed;
  }
  return record;
}

}  // namespace

double Job::share_of(Index steps) const {
  return std::min(1.0, static_cast<double>(steps) / static_cast<double>(run->config.train.steps));
}

std::set<std::string> with_status(std::string_view status, const std::vector<Job>& jobs) {
  std::set<std::string> names;
  for (const Job& job : jobs) {
    if (job.status == status) names.insert(job.run->name);
  }
  return names;
}

Index jobs_at_once(const Sweep& sweep, Index shards, Index cores) {
  double largest = 1;
  for (const auto& [name, sets, config] : sweep.runs) {
    const ParameterLayout layout(config.model, usual_vocabulary);
    largest = std::max(largest, training_bytes(config.model, layout, usual_vocabulary,
                                               config.train.batch_size, config.train.grad_accum));
  }
  const Index runs = (std::ssize(sweep.runs) + shards - 1) / shards;
  const Index fitting = static_cast<Index>(available_memory_bytes() / (2 * largest));
  return std::max<Index>(1, std::min({cores, runs, fitting}));
}

std::vector<Job> plan(const Sweep& sweep, const fs::path& out, Index shard, Index shards) {
  std::vector<Job> jobs;
  for (Index i = shard - 1; i < std::ssize(sweep.runs); i += shards) {
    const SweepRun& run = sweep.runs[i];
    if (is_run_file(run.name) || run.name.starts_with(table_file))
      refuse("sweep", "a run cannot be called ", run.name,
             ": its folder would stand where a file of that name ",
             "is looked for; give the case or the sweep another name");
    const ParameterLayout layout(run.config.model, usual_vocabulary);
    const double seconds = expected_step_seconds(run.config.model, layout, run.config.tokens_per_step()) *
                           static_cast<double>(run.config.train.steps);
    jobs.push_back({&run, (out / run.name).string(), {seconds, 0, 0}, ""});
  }
  return jobs;
}

void mark_finished(std::vector<Job>& jobs) {
  std::vector<std::string> errors;
  double expected = 0, taken = 0;
  for (Job& job : jobs) {
    const RunRecord record = record_of(job.folder);
    if (record.status.empty() || record.status == status_failed) continue;
    if (const std::string keys = fixed_differences(record.config, job.run->config); !keys.empty())
      errors.push_back(text("[sweep] ", escape_controls(job.folder), " holds a run of another config: ", keys,
                            "; remove it, or choose another folder with --out DIR"));
    const bool whole = record.steps >= job.run->config.train.steps;
    if ((record.status == status_done && whole) || record.status == status_diverged)
      job.status = record.status;
    job.time.before = job.time.now = job.status.empty() ? job.share_of(record.steps) : 1;
    if (job.status == status_done && record.seconds) {
      expected += job.time.expected;
      taken += *record.seconds;
    }
  }
  if (!errors.empty()) throw Error(Exit::usage, join(errors, "\n"));
  for (Job& job : jobs) job.time.expected *= taken > 0 ? taken / expected : 1;
}

std::string progress_of(Job& job) try {
  CsvReader log((fs::path(job.folder) / metrics_file).string());
  log.skip_to_last(400);  // a row takes less
  Index step = 0;
  std::string loss;
  while (log.next()) {
    step = log.count("step");
    loss = log.cell("train_loss");
  }
  if (step == 0) return "starting";
  job.time.now = job.share_of(step);
  return text("step ", step, "/", job.run->config.train.steps, "  loss ", loss.substr(0, 6));
} catch (const Error&) {  // there is no log yet, or the run's end will report what is wrong with it
  return "starting";
}

double seconds_left(const std::vector<Job>& jobs, double elapsed, Index at_once) {
  double done = 0, left = 0, longest = 0;
  for (const Job& job : jobs) {
    const auto [expected, before, now] = job.time;
    done += expected * (now - before);
    left += expected * (1 - now);
    longest = std::max(longest, expected * (1 - now));
  }
  const double slots = static_cast<double>(at_once);
  const double pace = done > 0 ? elapsed / done : 1 / slots;
  return pace * std::max(left, slots * longest);  // the last run has no other beside it
}

std::string read_existing_table(const fs::path& out) {
  const std::string path = (out / table_file).string();
  if (!fs::exists(path)) return "";
  const std::string table = fs::is_regular_file(path) ? read_file(path, {.where = "sweep"}) : "";
  const std::string_view header = std::string_view(table).substr(0, table.find('\n'));
  std::string last_columns;
  for (const RecordField& column : fields_by(&RecordField::sweep)) last_columns += text(',', column.key);
  if (!header.starts_with("name,") || !header.ends_with(last_columns))
    refuse("sweep", escape_controls(path),
           ": is no table of a sweep, and would be replaced by one; move it away, or ",
           "choose another folder with --out DIR");
  return table;
}

void write_table(const Sweep& sweep, const fs::path& out, const std::set<std::string>& failed, bool sharded) {
  std::optional<FolderLock> lock;  // no other shard may write between this one's reading and writing
  if (sharded) lock.emplace(out.string(), "table", IfLocked::wait);
  const std::vector<RecordField> fields = fields_by(&RecordField::sweep);
  const std::string failed_cells = text(',', status_failed, std::string(fields.size() - 1, ','));
  std::set<std::string> failed_before;
  for (const std::string& line : split(read_existing_table(out), '\n')) {
    if (line.ends_with(failed_cells)) failed_before.insert(line.substr(0, line.find(',')));
  }

  std::vector<std::string> columns = {"name"};
  columns.insert(columns.end(), sweep.varied_keys.begin(), sweep.varied_keys.end());
  for (const RecordField& field : fields) columns.emplace_back(field.key);
  CsvRows rows(columns);
  for (const SweepRun& run : sweep.runs) {
    const fs::path folder = out / run.name;
    const bool failed_there = failed_before.contains(run.name) && !fs::exists(folder / summary_file);
    RunRecord record = record_of(folder.string());
    if (failed.contains(run.name) || failed_there) record.status = status_failed;
    if (record.status.empty()) continue;
    rows.cell(run.name);
    for (const std::string& key : sweep.varied_keys) rows.cell(value_text(run.config, key));
    for (const RecordField& field : fields) {
      const bool has_value = record.status != status_failed || field.key == std::string_view("status");
      has_value ? add_cell(rows, field, record) : rows.cell(std::nullopt);
    }
    rows.end_row();
  }
  write_atomically((out / table_file).string(), rows.header(), rows.text());
}

ChildProcess::ChildProcess(Job& of, const std::vector<std::string>& arguments)
    : job(of), stderr_(::memfd_create("stderr", MFD_CLOEXEC)) {
  require(stderr_.is_open(), "sweep", "cannot make a file for its errors: ", errno_text());

  // All memory is allocated before fork(): the child may only call async-signal-safe functions.
  std::vector<std::string> words = {"normscope"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  require(child >= 0, "sweep", "cannot start a process: ", errno_text());
  if (child == 0) {
    ::setpgid(0, 0);  // the parent passes a terminal's Ctrl-C on; twice, it would end the child at once
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);  // the parent ended before prctl()
    const int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(stderr_.get(), STDERR_FILENO);
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }
  id_ = child;
}

ChildProcess::~ChildProcess() {
  terminate();
  while (id_ != 0 && !poll()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

std::string ChildProcess::errors() const {
  const Index size = ::lseek(stderr_.get(), 0, SEEK_END);
  std::string last(std::min(size, max_stderr_bytes), '\0');
  read_at(stderr_.get(), last.data(), std::ssize(last), size - std::ssize(last));
  return last;
}

std::optional<int> ChildProcess::poll() {
  int status = 0;
  const pid_t ended = ::waitpid(id_, &status, WNOHANG);
  if (ended == 0) return std::nullopt;
  id_ = 0;
  if (ended < 0) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void ChildProcess::terminate() {
  if (id_ != 0 && !std::exchange(terminated_, true)) ::kill(id_, SIGTERM);
}

}  // namespace normscope
