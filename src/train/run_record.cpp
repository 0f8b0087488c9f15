#include "train/run_record.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

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

// By the rows of the first logged step, where no summary says it: of a run that is not finished, or that an
// earlier version made. Nothing where they cannot be read.
std::optional<double> branch_share_of(const std::string& folder) {
  try {
    CsvReader log(file_in(folder, layers_file));
    const std::size_t site = log.column("site"), rms = log.column("rms");
    std::vector<SiteRow> rows;
    std::string step;
    while (log.next() && (rows.empty() || log.first() == step)) {
      step = log.first();
      const auto name = std::find(site_names.begin(), site_names.end(), log.field(site));
      if (name == site_names.end()) continue;
      SiteRow row{};
      row.place.site = static_cast<Site>(name - site_names.begin());
      row.rms = log.number(rms).value_or(0);
      rows.push_back(row);
    }
    return branch_share(rows);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

RunRecord read_run(const std::string& folder) {
  if (!fs::exists(file_in(folder, config_file))) {
    refuse("compare", printable(folder), ": not a run (it has no ", config_file, ")");
  }
  RunRecord run;
  run.folder = folder;
  run.config = load_config(file_in(folder, config_file), {}, {.need_data = false}).config;
  if (!fs::exists(file_in(folder, summary_file))) {
    run.status = "unfinished";
    run.branch_share = branch_share_of(folder);
    return run;
  }
  const std::string path = file_in(folder, summary_file);
  const nlohmann::json json = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail("compare", printable(path), ": damaged; not a JSON object");
  run.status = words_in(json, "status");
  if (run.status.empty()) run.status = "unfinished";
  run.steps = count_in(json, "steps");
  run.params = count_in(json, "params");
  run.vocab = count_in(json, "vocab");
  run.final_train_loss = number_in(json, "final_train_loss");
  run.final_val_loss = number_in(json, "final_val_loss");
  run.best_val_loss = number_in(json, "best_val_loss");
  run.grad_first_last = number_in(json, "grad_first_last");
  run.growth = number_in(json, "growth");
  run.branch_share = number_in(json, "branch_share");
  if (!run.branch_share) run.branch_share = branch_share_of(folder);
  run.unigram = number_in(json, "unigram");
  run.tokens_per_s = number_in(json, "tokens_per_s");
  run.seconds = number_in(json, "seconds");
  run.story = words_in(json, "story");
  if (const auto first = json.find("first_nonfinite"); first != json.end() && first->is_object())
    run.diverged_step = count_in(*first, "step");
  return run;
}

std::vector<std::string> run_folders(const std::string& argument) {
  if (!fs::is_directory(argument)) refuse("compare", printable(argument), ": no such folder");
  if (fs::is_regular_file(file_in(argument, config_file))) return {argument};
  std::vector<std::string> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(argument)) {
    if (fs::is_regular_file(entry.path() / config_file)) folders.push_back(entry.path().string());
  }
  if (folders.empty()) refuse("compare", printable(argument), ": neither a run nor a folder of runs");
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace normscope
