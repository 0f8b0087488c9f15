#include "run/record.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "config/load.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::optional<FirstNonfinite>& first) {
  const bool is_site = first->param.empty();
  return {{"step", first->step},
          {"layer", first->layer},
          {is_site ? "site" : "param", is_site ? first->site : first->param},
          {"kind", first->in_gradient ? "gradient" : "value"}};
}
template <class Number>
Json json_of(const std::optional<Number>& number) {
  return number ? Json(*number) : nullptr;  // numbers that are not finite are printed as null too
}
template <class Value>
Json json_of(const Value& value) {
  return value;
}

// Each sets `out` if the JSON value has its type.
void read_value(const Json& json, std::string& out) {
  if (json.is_string()) out = json;
}
void read_value(const Json& json, std::optional<double>& out) {
  if (json.is_number()) out = json.get<double>();
}
void read_value(const Json& json, Index& out) {
  if (json.is_number() && json >= 0 && json < 0x1p53) out = json.get<Index>();
}
void read_value(const Json& json, std::optional<Index>& out) {
  if (json.is_number()) read_value(json, out.emplace());
}
void read_value(const Json& json, std::optional<FirstNonfinite>& out) {
  if (!json.is_object()) return;
  const auto member = [&](const char* key) { return json.value(key, Json()); };
  read_value(member("step"), out.emplace().step);
  read_value(member("layer"), out->layer);
  read_value(member("site"), out->site);
  read_value(member("param"), out->param);
  out->in_gradient = member("kind") == "gradient";
}

Json::json_pointer pointer_to(const RecordField& field) { return Json::json_pointer(text('/', field.key)); }

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

double grad_first_last(const std::vector<ParameterRow>& rows, Index n_layer) {
  double first = 0, last = 0;
  for (const ParameterRow& row : rows) {
    const double square = row.grad_norm * row.grad_norm;
    if (row.layer == 1) first += square;
    if (row.layer == n_layer) last += square;
  }
  return std::sqrt(first / last);
}

double growth(const std::vector<SiteRow>& rows) {
  // The first row is stream 0; the third from the end is stream L (final and logits follow).
  return rows[rows.size() - 3].rms / rows.front().rms;
}

std::optional<double> branch_share(const std::vector<SiteRow>& rows) {
  double stream = 0, sum = 0;
  int branches = 0;
  for (const SiteRow& row : rows) {
    const Site site = row.place.site;
    if (site == Site::attn_out || site == Site::ffn_out) {
      sum += stream > 0 ? row.rms / stream : 0;
      ++branches;
    }
    if (site == Site::stream || site == Site::stream_mid) stream = row.rms;
  }
  if (branches == 0 || !std::isfinite(sum)) return std::nullopt;
  return sum / branches;
}

bool branches_too_small(const ModelConfig& config, double share) {
  const bool by_design = std::ranges::any_of(sublayer_rows(config), [](const Placement* row) {
    return row->norm_branch || row->learned_scale || !row->init_gain.is_one();
  });
  const bool scaled =
      config.branch_scale_learned != LearnedScale::none || config.branch_scale.of(config.n_layer) != 1;
  return share < 0.05 && !scaled && config.norm != NormKind::none && !by_design;
}

const std::vector<RecordField>& record_fields() {
  using R = RunRecord;
  // clang-format off
  static const std::vector<RecordField> fields = {
      {.key = "status", .member = &R::status},
      {.key = "steps", .member = &R::steps},
      {.key = "params", .member = &R::params},
      {.key = "vocab", .member = &R::vocab},
      {.key = "corpus_hash", .member = &R::corpus_hash},
      {.key = "final_train_loss", .member = &R::final_train_loss},
      {.key = "final_val_loss", .member = &R::final_val_loss},
      {.key = "best_val_loss", .member = &R::best_val_loss},
      {.key = "best_step", .member = &R::best_step, .trained = true},
      {.key = "grad_first_last", .member = &R::grad_first_last},
      {.key = "growth", .member = &R::growth},
      {.key = "branch_share", .member = &R::branch_share, .trained = true},
      {.key = "unigram", .member = &R::unigram, .trained = true},
      {.key = "bigram", .member = &R::bigram, .trained = true},
      {.key = "trigram", .member = &R::trigram, .trained = true},
      {.key = "4-gram", .member = &R::four_gram, .trained = true},
      {.key = "skipped", .member = &R::skipped, .trained = true},
      {.key = "seconds", .member = &R::seconds, .trained = true},
      {.key = "tokens_per_s", .member = &R::tokens_per_s, .trained = true},
      {.key = "peak_rss_mb", .member = &R::peak_rss_mb},
      {.key = "ranks", .member = &R::ranks, .trained = true},
      {.key = "threads", .member = &R::threads},
      {.key = "precision", .member = &R::precision},
      {.key = "gemm", .member = &R::gemm},
      {.key = "blas/flavour", .member = &R::blas_flavour},
      {.key = "blas/version", .member = &R::blas_version},
      {.key = "blas/kernel", .member = &R::blas_kernel},
      {.key = "cpu", .member = &R::cpu},
      {.key = "isa", .member = &R::isa},
      {.key = "compiler", .member = &R::compiler},
      {.key = "libc", .member = &R::libc},
      {.key = "version", .member = &R::version},
      {.key = "commit", .member = &R::commit},
      {.key = "trajectory_hash", .member = &R::trajectory_hash, .trained = true},
      {.key = "first_nonfinite", .member = &R::first_nonfinite, .nonfinite = true},
      {.key = "story", .member = &R::story, .trained = true, .nonfinite = true},
  };
  // clang-format on
  return fields;
}

void write_record(const Destination& to, const RunRecord& run) {
  Json json;
  for (const RecordField& field : record_fields()) {
    if ((field.trained && run.status == status_probe) || (field.nonfinite && !run.first_nonfinite)) continue;
    std::visit([&](auto member) { json[pointer_to(field)] = json_of(run.*member); }, field.member);
  }
  write_atomically(to, json_text(json));
}

bool read_record(const std::string& path, RunRecord& run) {
  const Json json = parse_json(read_file(path));
  if (!json.is_object()) return false;
  for (const RecordField& field : record_fields()) {
    if (!json.contains(pointer_to(field))) continue;
    std::visit([&](auto member) { read_value(json[pointer_to(field)], run.*member); }, field.member);
  }
  return true;
}

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
  if (!fs::is_directory(argument)) refuse("run", escape_controls(argument), ": no such folder");
  if (fs::is_regular_file(fs::path(argument) / config_file)) return {argument};
  std::map<std::string, std::size_t> rank;  // the rows of a sweep's runs
  std::ifstream table(fs::path(argument) / "summary.csv");
  for (std::string line; std::getline(table, line);)
    rank.try_emplace(line.substr(0, line.find(',')), rank.size());
  std::vector<std::string> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(argument)) {
    if (fs::is_regular_file(entry.path() / config_file)) folders.push_back(entry.path().string());
  }
  if (folders.empty()) refuse("run", escape_controls(argument), ": neither a run nor a folder of runs");
  const auto row_of = [&](const std::string& folder) {
    const auto row = rank.find(fs::path(folder).filename().string());
    return row == rank.end() ? rank.size() : row->second;
  };
  std::ranges::sort(folders, [&](const std::string& a, const std::string& b) {
    return row_of(a) != row_of(b) ? row_of(a) < row_of(b) : ::strverscmp(a.c_str(), b.c_str()) < 0;
  });
  return folders;
}

}  // namespace normscope
