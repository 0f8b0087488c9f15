#include "train/run_record.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/load.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/utf8.h"
#include "train/run_folder.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

std::string file_in(const std::string& folder, const char* name) {
  return (fs::path(folder) / name).string();
}

// --- summary.json ---

std::optional<double> number_in(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// A count: 0 where there is none, or none that can be one.
Index count_in(const nlohmann::json& json, const char* key) {
  const double number = number_in(json, key).value_or(0);
  return number >= 0 && number < 0x1p53 ? static_cast<Index>(number) : 0;
}

std::string words_in(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

void read_summary(const std::string& path, RunRecord& run) {
  const nlohmann::json json = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail("run", escape_controls(path), ": damaged; not a JSON object");
  if (const std::string status = words_in(json, "status"); !status.empty()) run.status = status;
  run.steps = count_in(json, "steps");
  run.params = count_in(json, "params");
  run.vocab = count_in(json, "vocab");
  run.final_train_loss = number_in(json, "final_train_loss");
  run.final_val_loss = number_in(json, "final_val_loss");
  run.best_val_loss = number_in(json, "best_val_loss");
  run.grad_first_last = number_in(json, "grad_first_last");
  run.growth = number_in(json, "growth");
  run.tokens_per_s = number_in(json, "tokens_per_s");
  run.seconds = number_in(json, "seconds");
  run.unigram = number_in(json, "unigram");
  run.branch_share = number_in(json, "branch_share");
  run.story = words_in(json, "story");
  if (const auto first = json.find("first_nonfinite"); first != json.end() && first->is_object())
    run.diverged_step = count_in(*first, "step");
}

// --- logs ---

// Steps, losses and pace so far. What follows a damaged row is not read.
void read_metrics(const std::string& path, RunRecord& run) try {
  CsvReader log(path);
  const std::size_t step = log.column("step"), train_loss = log.column("train_loss"),
                    val_loss = log.column("val_loss"), tokens_per_s = log.column("tokens_per_s");
  double rows = 0, pace = 0;  // pace: sum of 1/(tokens per second)
  while (log.next()) {
    run.steps = static_cast<Index>(log.number(step).value_or(0));
    if (const auto loss = log.number(train_loss)) run.final_train_loss = loss;
    if (const auto loss = log.number(val_loss)) {
      run.final_val_loss = loss;
      if (*loss < run.best_val_loss.value_or(HUGE_VAL)) run.best_val_loss = loss;  // nan is never the best
    }
    const double speed = log.number(tokens_per_s).value_or(0);
    rows += speed > 0 ? 1 : 0;
    pace += speed > 0 ? 1 / speed : 0;
    if (rows > 0) run.tokens_per_s = rows / pace;
  }
} catch (const Error&) {
}

struct LoggedRow {
  std::string name;             // of a site or a parameter
  std::vector<double> numbers;  // NaN where a cell is empty
};

// The rows of the first logged step, or of the last, with numbers of these columns. None if the log is
// damaged there.
std::vector<LoggedRow> rows_of_step(const std::string& path, const RunRecord& run, const char* name,
                                    std::initializer_list<const char*> numbers, bool last) try {
  std::vector<LoggedRow> rows;
  CsvReader log(path);
  const std::size_t name_column = log.column(name);
  std::vector<std::size_t> columns;
  for (const char* number : numbers) columns.push_back(log.column(number));
  if (last) log.skip_to_last(8000 * (run.config.model.n_layer + 2));  // more than two steps' rows take
  for (std::string step; log.next();) {
    if (log.first() != step) {
      if (!rows.empty() && !last) break;
      rows.clear();
      step = log.first();
    }
    LoggedRow& row = rows.emplace_back(LoggedRow{log.field(name_column), {}});
    for (const std::size_t column : columns) row.numbers.push_back(log.number(column).value_or(std::nan("")));
  }
  return rows;
} catch (const Error&) {
  return {};
}

// What the last logged step says of gradients and activations.
void read_last_step(const std::string& folder, RunRecord& run) {
  const auto last = static_cast<double>(run.config.model.n_layer);
  double first_square = 0, last_square = 0, params = 0, stream_0 = 0, stream_L = 0;
  for (const LoggedRow& row :
       rows_of_step(file_in(folder, params_file), run, "param", {"layer", "grad_norm", "numel"}, true)) {
    const double layer = row.numbers[0], grad_norm = row.numbers[1];
    if (layer == 1) first_square += grad_norm * grad_norm;
    if (layer == last) last_square += grad_norm * grad_norm;
    params += row.numbers[2];
  }
  if (params > 0) run.params = static_cast<Index>(params);
  if (params > 0) run.grad_first_last = std::sqrt(first_square / last_square);
  for (const LoggedRow& row :
       rows_of_step(file_in(folder, layers_file), run, "site", {"layer", "rms"}, true)) {
    if (row.name == "stream" && row.numbers[0] == 0) stream_0 = row.numbers[1];
    if (row.name == "stream" && row.numbers[0] == last) stream_L = row.numbers[1];
  }
  if (stream_0 > 0 && stream_L > 0) run.growth = stream_L / stream_0;
}

std::optional<double> first_branch_share(const std::string& folder, const RunRecord& run) {
  std::vector<SiteRow> rows;
  for (const LoggedRow& logged : rows_of_step(file_in(folder, layers_file), run, "site", {"rms"}, false)) {
    const auto name = std::find(site_names.begin(), site_names.end(), logged.name);
    if (name == site_names.end()) continue;
    SiteRow& row = rows.emplace_back();
    row.place.site = static_cast<Site>(name - site_names.begin());
    row.rms = logged.numbers[0];
  }
  return branch_share(rows);
}

}  // namespace

RunRecord read_run(const std::string& folder) {
  if (!fs::exists(file_in(folder, config_file))) {
    refuse("run", escape_controls(folder), ": not a run (it has no ", config_file, ")");
  }
  RunRecord run;
  run.folder = folder;
  run.config = load_config(file_in(folder, config_file), {}, {.need_data = false}).config;
  run.status = "unfinished";
  if (const std::string path = file_in(folder, summary_file); fs::exists(path)) read_summary(path, run);
  if (run.status == "unfinished" && !fs::exists(file_in(folder, metrics_file)) &&
      fs::exists(file_in(folder, layers_file))) {
    run.status = "probe";  // of a version that wrote no summary
    read_last_step(folder, run);
  } else if (run.status == "unfinished" || run.status == "interrupted") {
    RunRecord logged = run;
    read_metrics(file_in(folder, metrics_file), logged);
    if (logged.steps > run.steps) {  // resumed since, if it was interrupted
      read_last_step(folder, logged);
      logged.status = "unfinished";
      run = logged;
    } else {
      run.final_val_loss = logged.final_val_loss;  // of which no summary of an interrupted run tells
    }
  }
  if (!run.branch_share) run.branch_share = first_branch_share(folder, run);
  return run;
}

std::vector<std::string> run_folders(const std::string& argument) {
  if (!fs::is_directory(argument)) refuse("compare", escape_controls(argument), ": no such folder");
  if (fs::is_regular_file(file_in(argument, config_file))) return {argument};
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
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : ::strverscmp(a.second.c_str(), b.second.c_str()) < 0;
  });
  std::vector<std::string> folders;
  for (auto& [row, folder] : found) folders.push_back(std::move(folder));
  return folders;
}

}  // namespace normscope
