#include "run/read.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "config/load.h"
#include "io/csv.h"
#include "io/utf8.h"
#include "run/figures.h"
#include "run/folder.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

std::string file_in(const std::string& folder, const char* name) {
  return (fs::path(folder) / name).string();
}

// Reads steps, losses and pace up to a damaged row.
void read_metrics(RunRecord& run) try {
  CsvReader log(file_in(run.folder, metrics_file));
  double rows = 0, seconds_per_token = 0;  // the latter summed over rows
  while (log.next()) {
    run.steps = log.count("step");
    if (const auto loss = log.number("train_loss")) run.final_train_loss = loss;
    if (const auto loss = log.number("val_loss")) {
      run.final_val_loss = loss;
      if (*loss < run.best_val_loss.value_or(HUGE_VAL)) run.best_val_loss = loss;  // nan is never the best
    }
    const double speed = log.number("tokens_per_s").value_or(0);
    if (!(speed > 0)) continue;
    seconds_per_token += 1 / speed;
    run.tokens_per_s = ++rows / seconds_per_token;
  }
} catch (const Error&) {
}

enum class Which { first, last };

// The results of `read` for each row of a log's first or last step; none if the log is damaged there.
template <class Read>
auto rows_of_step(Which which, const RunRecord& run, const char* file, Read read) {
  std::vector<decltype(read(std::declval<CsvReader&>()))> rows;
  try {
    CsvReader log(file_in(run.folder, file));
    constexpr Index two_steps_bytes = 16000;  // for each layer; rows take less
    if (which == Which::last) log.skip_to_last(two_steps_bytes * (run.config.model.n_layer + 2));
    for (Index step = -1; log.next();) {
      const Index before = std::exchange(step, log.count("step"));
      if (step != before && !rows.empty() && which == Which::first) break;
      if (step != before) rows.clear();
      rows.push_back(read(log));
    }
  } catch (const Error&) {
    rows.clear();
  }
  return rows;
}

// The sites of a logged step, with their rms only; none if rows are missing.
std::vector<SiteRow> sites_of_step(Which which, const RunRecord& run) {
  const auto read = [](const CsvReader& log) { return log.number("rms").value_or(std::nan("")); };
  const std::vector<double> rms = rows_of_step(which, run, layers_file, read);
  const std::vector<Place> places = places_of(run.config.model.n_layer);
  std::vector<SiteRow> rows;
  for (std::size_t i = 0; i < places.size() && rms.size() == places.size(); ++i) {
    rows.emplace_back().place = places[i];
    rows.back().rms = rms[i];
  }
  return rows;
}

// Sets the figures of the last logged step.
void read_last_step(RunRecord& run) {
  const auto read = [](const CsvReader& log) {
    ParameterRow row{};
    row.layer = log.count("layer");
    row.numel = log.count("numel");
    row.grad_norm = log.number("grad_norm").value_or(std::nan(""));
    return row;
  };
  const std::vector<ParameterRow> params = rows_of_step(Which::last, run, params_file, read);
  if (!params.empty()) run.params = 0;
  for (const ParameterRow& row : params) run.params += row.numel;
  if (!params.empty()) run.grad_first_last = grad_first_last(params, run.config.model.n_layer);
  const std::vector<SiteRow> sites = sites_of_step(Which::last, run);
  if (!sites.empty()) run.growth = growth(sites);
}

}  // namespace

RunRecord read_run(const std::string& folder) {
  const auto has = [&](const char* name) { return fs::exists(file_in(folder, name)); };
  if (!has(config_file)) refuse("run", escape_controls(folder), ": not a run (it has no ", config_file, ")");
  RunRecord run;
  run.folder = folder;
  run.config = load_config(file_in(folder, config_file), {}, {.need_data = false}).config;
  run.status = status_unfinished;
  if (const std::string path = file_in(folder, summary_file); has(summary_file) && !read_record(path, run))
    fail("run", escape_controls(path), ": damaged; not a JSON object");
  if (run.status == status_unfinished && !has(metrics_file) && has(layers_file)) {
    run.status = status_probe;  // of a version that wrote no summary
    read_last_step(run);
  } else if (run.status == status_unfinished || run.status == status_interrupted) {
    RunRecord logged = run;
    read_metrics(logged);
    if (logged.steps > run.steps) {  // resumed since, if it was interrupted
      read_last_step(logged);
      logged.status = status_unfinished;
      run = logged;
    } else {
      run.final_val_loss = logged.final_val_loss;  // an interrupted run's summary has none
    }
  }
  if (!run.branch_share) run.branch_share = branch_share(sites_of_step(Which::first, run));
  return run;
}

std::vector<std::string> run_folders(const std::string& argument) {
  if (!fs::is_directory(argument)) refuse("compare", escape_controls(argument), ": no such folder");
  if (fs::is_regular_file(fs::path(argument) / config_file)) return {argument};
  std::map<std::string, std::size_t> rank;  // of a sweep's runs
  std::ifstream table(fs::path(argument) / "summary.csv");
  for (std::string line; std::getline(table, line);)
    rank.try_emplace(line.substr(0, line.find(',')), rank.size());
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(argument)) {
    if (!fs::is_regular_file(entry.path() / config_file)) continue;
    const auto row = rank.find(entry.path().filename().string());
    found.emplace_back(row == rank.end() ? rank.size() : row->second, entry.path().string());
  }
  if (found.empty()) refuse("compare", escape_controls(argument), ": neither a run nor a folder of runs");
  std::ranges::sort(found, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : ::strverscmp(a.second.c_str(), b.second.c_str()) < 0;
  });
  std::vector<std::string> folders;
  for (auto& [row, folder] : found) folders.push_back(std::move(folder));
  return folders;
}

}  // namespace normscope
