#include "cli/sweep_jobs.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "cli/session.h"
#include "config/dump.h"
#include "core/error.h"
#include "core/memory.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/utf8.h"
#include "model/cost.h"
#include "model/parameters.h"
#include "run/folder.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

constexpr Index usual_vocabulary = 80;  // for the estimate of a run's time
// The columns that every summary.csv ends with.
std::string last_columns_text() {
  std::string names;
  for (const RecordField& column : sweep_columns()) names += text(',', column.key);
  return names;
}

// What the run's folder holds; nothing where the run has not begun. One that cannot be read counts as failed.
std::optional<RunRecord> record_of(const std::string& folder) {
  if (!fs::exists(fs::path(folder) / config_file)) return std::nullopt;
  RunRecord record;
  try {
    record = read_run(folder);
    if (record.status != status_done && record.status != status_diverged) record.status = status_interrupted;
  } catch (const Error&) {
    record.status = "failed";
  }
  return record;
}

void add_row(CsvRows& rows, const Sweep& sweep, const SweepRun& run, const RunRecord& record) {
  rows.cell(run.name);
  for (const std::string& key : sweep.varied_keys) rows.cell(value_text(run.config, key));
  for (const RecordField& column : sweep_columns()) {
    const bool has_figures = record.status != "failed" || column.key == std::string_view("status");
    has_figures ? add_cell(rows, column, record) : rows.cell(std::nullopt);
  }
  rows.end_row();
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
  for (const SweepRun& run : sweep.runs) {
    const ModelConfig& model = run.config.model;
    largest =
        std::max(largest, training_bytes(model, ParameterLayout(model, usual_vocabulary), usual_vocabulary,
                                         run.config.train.batch_size, run.config.train.grad_accum));
  }
  const Index runs = (static_cast<Index>(sweep.runs.size()) + shards - 1) / shards;
  const Index with_room = static_cast<Index>(available_memory_bytes() / (2 * largest));
  return std::max<Index>(1, std::min({cores, runs, with_room}));
}

std::vector<Job> plan(const Sweep& sweep, const fs::path& out, Index shard, Index shards) {
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < sweep.runs.size(); ++i) {
    if (static_cast<Index>(i) % shards != shard - 1) continue;
    const SweepRun& run = sweep.runs[i];
    if (is_run_file(run.name) || run.name.starts_with(table_file)) {
      refuse("sweep", "a run cannot be called ", run.name,
             ": its folder would stand where a file of that name ",
             "is looked for; give the case or the sweep another name");
    }
    const ParameterLayout layout(run.config.model, usual_vocabulary);
    jobs.push_back({&run, (out / run.name).string(), {expected_seconds(run.config, layout), 0, 0}, ""});
  }
  return jobs;
}

void find_finished(std::vector<Job>& jobs) {
  std::string lines;
  double expected = 0, taken = 0;
  for (Job& job : jobs) {
    if (!fs::exists(fs::path(job.folder) / config_file)) continue;
    RunRecord record;
    try {
      record = read_run(job.folder);
    } catch (const Error&) {
      continue;
    }
    if (const std::string keys = fixed_differences(record.config, job.run->config); !keys.empty()) {
      lines += text(lines.empty() ? "" : "\n", "[sweep] ", escape_controls(job.folder),
                    " holds a run of another config: ", keys,
                    "; remove it, or choose another folder with --out DIR");
    }
    const bool whole = record.steps >= job.run->config.train.steps;
    if ((record.status == status_done && whole) || record.status == status_diverged)
      job.status = record.status;
    job.time.before = job.time.now = job.status.empty() ? job.share_of(record.steps) : 1;
    if (job.status == status_done && record.seconds) {
      expected += job.time.expected;
      taken += *record.seconds;
    }
  }
  if (!lines.empty()) throw Error(Exit::usage, lines);
  for (Job& job : jobs) job.time.expected *= taken > 0 ? taken / expected : 1;
}

std::optional<FolderLock> take_folder(const fs::path& out, const std::string& part, Communicator& ranks,
                                      std::vector<Job>& jobs) {
  auto lock = ranks.together([&] {
    std::optional<FolderLock> own;  // the first rank's
    if (!ranks.is_first()) return own;
    own_table(out);  // refuses somebody else's before anything is run
    std::error_code error;
    fs::create_directories(out, error);
    if (error) fail("sweep", "could not create ", escape_controls(out.string()), ": ", error.message());
    own.emplace(out.string(), part);
    find_finished(jobs);
    return own;
  });
  for (Job& job : jobs) ranks.broadcast(job.status);
  return lock;
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
} catch (const Error&) {  // no log yet, or none that can be read: the run's end says why
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
  const double lanes = static_cast<double>(at_once);
  const double pace = done > 0 ? elapsed / done : 1 / lanes;
  return pace * std::max(left, lanes * longest);  // the last run has no other beside it
}

std::string own_table(const fs::path& out) {
  const std::string path = (out / table_file).string();
  if (!fs::exists(path)) return "";
  const std::string table = fs::is_regular_file(path) ? read_file(path, {.where = "sweep"}) : "";
  const std::string_view header = std::string_view(table).substr(0, table.find('\n'));
  if (!header.starts_with("name,") || !header.ends_with(last_columns_text())) {
    refuse("sweep", escape_controls(path),
           ": is no table of a sweep, and would be replaced by one; move it away, or ",
           "choose another folder with --out DIR");
  }
  return table;
}

void write_table(const Sweep& sweep, const fs::path& out, const std::set<std::string>& failed, bool sharded) {
  std::optional<FolderLock> lock;  // what is read here may not be older than the table that it replaces
  if (sharded) lock.emplace(out.string(), "table", IfLocked::wait);
  std::set<std::string> failed_before;
  std::istringstream old(own_table(out));
  for (std::string line; std::getline(old, line);) {
    if (line.ends_with(text(",failed", std::string(sweep_columns().size() - 1, ','))))
      failed_before.insert(line.substr(0, line.find(',')));
  }

  std::vector<std::string> columns = {"name"};
  columns.insert(columns.end(), sweep.varied_keys.begin(), sweep.varied_keys.end());
  for (const RecordField& column : sweep_columns()) columns.emplace_back(column.key);
  CsvRows rows(columns);
  RunRecord without_figures;
  without_figures.status = "failed";
  for (const SweepRun& run : sweep.runs) {
    const fs::path folder = out / run.name;
    const bool failed_there = failed_before.contains(run.name) && !fs::exists(folder / summary_file);
    const std::optional<RunRecord> record =
        failed.contains(run.name) || failed_there ? without_figures : record_of(folder.string());
    if (record) add_row(rows, sweep, run, *record);
  }
  write_atomically((out / table_file).string(), rows.header(), rows.text());
}

}  // namespace normscope
