#include "train/run_record.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/load.h"
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
  if (!json.is_object()) fail("run", printable(path), ": damaged; not a JSON object");
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

// A log's rows one by one, from the first or from a place near the end. What is damaged or half written is
// passed over: a run may be writing, or was killed.
class LogRows {
 public:
  explicit LogRows(const std::string& path) : file_(path, std::ios::binary) {
    if (!next()) return;
    for (std::size_t i = 0; i < cells_.size(); ++i) columns_[std::string(cells_[i])] = i;
  }

  // Goes on with the first row that begins in the last `bytes` of the file.
  void skip_to_last(std::streamoff bytes) {
    const std::streamoff here = file_.tellg();
    file_.seekg(0, std::ios::end);
    const std::streamoff start = static_cast<std::streamoff>(file_.tellg()) - bytes;
    file_.seekg(std::max(here, start));
    if (start > here) next();  // the end of a row
  }

  bool next() {
    if (!std::getline(file_, line_) || file_.eof()) return false;  // a last line without its newline is torn
    cells_.clear();
    for (std::size_t begin = 0; begin <= line_.size();) {
      const std::size_t end = std::min(line_.find(',', begin), line_.size());
      cells_.push_back(std::string_view(line_).substr(begin, end - begin));
      begin = end + 1;
    }
    return true;
  }

  std::string_view cell(const char* column) const {
    const auto found = columns_.find(column);
    return found == columns_.end() || found->second >= cells_.size() ? "" : cells_[found->second];
  }
  std::optional<double> number(const char* column) const {
    const std::string_view digits = cell(column);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
    return whole ? std::optional(value) : std::nullopt;
  }

 private:
  std::ifstream file_;
  std::string line_;
  std::vector<std::string_view> cells_;
  std::map<std::string, std::size_t> columns_;
};

// Steps, losses and pace so far.
void read_metrics(const std::string& path, RunRecord& run) {
  double rows = 0, pace = 0;  // pace: sum of 1/(tokens per second)
  for (LogRows log(path); log.next();) {
    run.steps = static_cast<Index>(log.number("step").value_or(0));
    if (const auto loss = log.number("train_loss")) run.final_train_loss = loss;
    if (const auto loss = log.number("val_loss")) {
      run.final_val_loss = loss;
      run.best_val_loss = std::min(*loss, run.best_val_loss.value_or(*loss));
    }
    const double speed = log.number("tokens_per_s").value_or(0);
    rows += speed > 0 ? 1 : 0;
    pace += speed > 0 ? 1 / speed : 0;
  }
  if (rows > 0) run.tokens_per_s = rows / pace;
}

// More than two steps' rows of layers.csv or params.csv take.
std::streamoff bytes_of_last_step(const RunRecord& run) { return 8000 * (run.config.model.n_layer + 2); }

// Calls `take` for each row of the last logged step; `restart` whenever a later step begins.
void each_of_last_step(const std::string& path, const RunRecord& run, const std::function<void()>& restart,
                       const std::function<void(const LogRows&)>& take) {
  LogRows log(path);
  log.skip_to_last(bytes_of_last_step(run));
  for (std::string step; log.next();) {
    if (log.cell("step") != step) {
      step = log.cell("step");
      restart();
    }
    take(log);
  }
}

void read_parameters(const std::string& path, RunRecord& run) {
  double first = 0, last = 0, numbers = 0;  // squares of gradients
  each_of_last_step(
      path, run, [&] { first = last = numbers = 0; },
      [&](const LogRows& log) {
        const double norm = log.number("grad_norm").value_or(0), layer = log.number("layer").value_or(0);
        if (layer == 1) first += norm * norm;
        if (layer == static_cast<double>(run.config.model.n_layer)) last += norm * norm;
        numbers += log.number("numel").value_or(0);
      });
  if (run.params == 0) run.params = static_cast<Index>(numbers);
  if (numbers > 0) run.grad_first_last = std::sqrt(first / last);
}

void read_growth(const std::string& path, RunRecord& run) {
  std::optional<double> first, last;
  each_of_last_step(
      path, run, [&] { first = last = std::nullopt; },
      [&](const LogRows& log) {
        if (log.cell("site") != "stream") return;
        if (log.number("layer") == 0) first = log.number("rms");
        if (log.number("layer") == static_cast<double>(run.config.model.n_layer)) last = log.number("rms");
      });
  if (first && last) run.growth = *last / *first;
}

std::optional<double> first_branch_share(const std::string& path) {
  double stream = 0, sum = 0;  // the stream that the next branch joins
  int branches = 0;
  std::string step;
  for (LogRows log(path); log.next();) {
    if (step.empty()) step = log.cell("step");
    if (log.cell("step") != step) break;
    const std::string_view site = log.cell("site");
    const double rms = log.number("rms").value_or(0);
    if (site == "attn_out" || site == "ffn_out") {
      sum += stream > 0 ? rms / stream : 0;
      ++branches;
    }
    if (site == "stream" || site == "stream_mid") stream = rms;
  }
  return branches > 0 ? std::optional(sum / branches) : std::nullopt;
}

}  // namespace

RunRecord read_run(const std::string& folder) {
  if (!fs::exists(file_in(folder, config_file))) {
    refuse("run", printable(folder), ": not a run (it has no ", config_file, ")");
  }
  RunRecord run;
  run.folder = folder;
  run.config = load_config(file_in(folder, config_file), {}, {.need_data = false}).config;
  run.status = "unfinished";
  if (const std::string path = file_in(folder, summary_file); fs::exists(path)) read_summary(path, run);
  if (run.status == "unfinished" && !fs::exists(file_in(folder, metrics_file)) &&
      fs::exists(file_in(folder, layers_file))) {
    run.status = "probe";  // of a version that wrote no summary
    read_parameters(file_in(folder, params_file), run);
    read_growth(file_in(folder, layers_file), run);
  } else if (run.status == "unfinished" || run.status == "interrupted") {
    RunRecord logged = run;
    read_metrics(file_in(folder, metrics_file), logged);
    if (logged.steps > run.steps) {  // resumed since, if it was interrupted
      read_parameters(file_in(folder, params_file), logged);
      read_growth(file_in(folder, layers_file), logged);
      logged.status = "unfinished";
      run = logged;
    } else {
      run.final_val_loss = logged.final_val_loss;  // of which no summary of an interrupted run tells
    }
  }
  if (!run.branch_share) run.branch_share = first_branch_share(file_in(folder, layers_file));
  return run;
}

std::vector<std::string> run_folders(const std::string& argument) {
  if (!fs::is_directory(argument)) refuse("compare", printable(argument), ": no such folder");
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
  if (found.empty()) refuse("compare", printable(argument), ": neither a run nor a folder of runs");
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : ::strverscmp(a.second.c_str(), b.second.c_str()) < 0;
  });
  std::vector<std::string> folders;
  for (auto& [row, folder] : found) folders.push_back(std::move(folder));
  return folders;
}

}  // namespace normscope
