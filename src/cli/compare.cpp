// normscope compare RUN...: runs side by side, seeds of one config together, and what can be said of them.
#include "cli/compare.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "cli/commands.h"
#include "cli/compare_remarks.h"
#include "cli/terminal.h"
#include "config/names.h"
#include "core/text.h"
#include "io/csv.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::ordered_json;

// --- the comparison, from which text and CSV are printed too ---

ordered_json json_of(const Group& group, const std::vector<const Field*>& apart) {
  ordered_json keys = ordered_json::object(), seeds, folders, figures;
  for (const Field* field : apart) {
    if (group.keys.contains(field)) keys[field->key] = group.keys.at(field);
  }
  std::map<std::string, std::size_t> status;
  Index params = 0;  // not known
  for (const RunRecord& run : group.runs) {
    seeds.push_back(run.config.train.seed);
    folders.push_back(run.folder);
    ++status[escape_controls(run.status)];
    params = std::max(params, run.params);
  }
  std::vector<std::string> placement;
  for (const PlacementKind kind : group.config().model.norm_placement) placement.emplace_back(name_of(kind));
  for (const RecordField& column : compare_columns()) {
    const Metric metric = group.metric(column.figure());
    ordered_json& figure = figures[column.key];
    figure = {{"mean", nullptr}, {"sd", nullptr}, {"n", metric.values.size()}};
    if (!metric.values.empty()) figure["mean"] = metric.mean();
    if (metric.values.size() > 1) figure["sd"] = *metric.stddev();
    figure["text"] = metric_text(metric, column.compare.digits);
  }
  return {{"label", group.label},
          {"keys", keys},
          {"seeds", seeds},
          {"folders", folders},
          {"placement", join(placement, "+")},
          {"norm", name_of(group.config().model.norm)},
          {"n_layer", group.config().model.n_layer},
          {"params", params},
          {"status", status},
          {"figures", figures}};
}

// --- printed ---

// Placement, norm, L, parameters and status.
std::vector<std::string> facts(const ordered_json& run, const std::string& params) {
  std::vector<std::string> status;
  for (const auto& [name, count] : run["status"].items())
    status.push_back((run["status"].size() == 1 ? "" : count.dump() + " ") + name);
  return {run["placement"], run["norm"], run["n_layer"].dump(), params, join(status)};
}

// Of more than two, labels tell placement, norm and L, and what all share stands below.
void print_runs(const ordered_json& runs) {
  std::vector<std::vector<std::string>> table = {{"run"}},
                                        known = {{"placement"}, {"norm"}, {"L"}, {"params"}, {"status"}};
  for (const ordered_json& run : runs) {
    const std::size_t seeds = run["seeds"].size();
    table[0].push_back(run["label"].get<std::string>() + (seeds > 1 ? text(" x", seeds, " seeds") : ""));
    const auto of_run = facts(run, run["params"] == 0 ? "-" : short_number(run["params"].get<double>()));
    for (std::size_t c = 0; c < known.size(); ++c) known[c].push_back(of_run[c]);
  }
  std::vector<std::string> common;
  std::set<std::size_t> words = {0};
  for (std::size_t c = 0; c < known.size(); ++c) {
    const bool many = runs.size() > 2;
    if (many && std::count(known[c].begin() + 1, known[c].end(), known[c][1]) == std::ssize(runs)) {
      common.push_back(known[c][0] + " " + known[c][1]);
    } else if (!many || c > 2) {
      if (c != 2 && c != 3) words.insert(table.size());
      table.push_back(known[c]);
    }
  }
  for (const RecordField& column : compare_columns()) {
    table.push_back({column.compare.title});
    for (const ordered_json& run : runs) table.back().push_back(run["figures"][column.key]["text"]);
  }
  print_table(table, words);
  std::cout << (common.empty() ? "" : "all: " + join(common) + "\n") << '\n';
}

void print_pairs(const ordered_json& pairs) {
  if (pairs.empty()) return;
  std::vector<std::vector<std::string>> table(3);
  for (const ordered_json& pair : pairs) {
    table[0].push_back("  " + pair["group"].get<std::string>());
    table[1].push_back(pair["difference"]);
    table[2].push_back(pair["text"]);
  }
  std::cout << "final val minus that of " << pairs[0]["base"].get<std::string>()
            << ", seed by seed, mean ± standard error:\n";
  print_table(table, {0, 2});
  std::cout << '\n';
}

void print_csv(const ordered_json& runs) {
  std::vector<std::string> names = {"run", "seeds", "placement", "norm", "n_layer", "params", "status"};
  for (const RecordField& column : compare_columns())
    names.insert(names.end(), {column.key, text(column.key, "_spread")});
  CsvRows rows(names);
  for (const ordered_json& run : runs) {
    rows.cell(run["label"].get<std::string>());
    rows.cell(run["seeds"].size());
    for (const std::string& fact : facts(run, run["params"].dump())) rows.cell(fact);
    for (const RecordField& column : compare_columns()) {
      for (const char* part : {"mean", "sd"}) {
        const ordered_json& number = run["figures"][column.key][part];
        rows.cell(number.is_null() ? "" : number.dump());
      }
    }
    rows.end_row();
  }
  std::cout << rows.header() << rows.text();
}

// --- the command ---

// The runs that the arguments name, each once. One that cannot be read hides none of the others.
std::vector<RunRecord> read_runs(const std::vector<std::string>& arguments, std::vector<Error>& errors) {
  std::vector<RunRecord> runs;
  std::set<std::filesystem::path> seen;
  for (const std::string& argument : arguments) {
    for (const std::string& folder : run_folders(argument)) {
      if (!seen.insert(std::filesystem::canonical(folder)).second) continue;
      try {
        runs.push_back(read_run(folder));
      } catch (const Error& error) {
        errors.push_back(error);
      }
    }
  }
  if (runs.empty()) throw errors[0];
  return runs;
}

// The group that --base names, by its label or the folder of one of its runs; else the first one.
std::size_t base_of(const std::vector<Group>& groups, const std::optional<std::string>& name) {
  const auto is_named = [&](const RunRecord& run) {
    return run.folder == *name || std::filesystem::path(run.folder).filename() == *name;
  };
  std::vector<std::string> labels;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& runs = groups[g].runs;
    if (!name || groups[g].label == *name || std::any_of(runs.begin(), runs.end(), is_named)) return g;
    labels.push_back(groups[g].label);
  }
  refuse("compare", "--base: got ", escape_controls(*name),
         "; expected a run's folder, or one of: ", join(labels, "; "));
}

struct Comparison {
  ordered_json runs = ordered_json::array(), paired, remarks;
  std::vector<Error> errors;  // of runs that cannot be read
};

Comparison compare(const std::vector<std::string>& arguments, const std::optional<std::string>& base_name) {
  Comparison all;
  const Grouping grouping = group_by_config(read_runs(arguments, all.errors));
  const std::size_t base = base_of(grouping.groups, base_name);
  for (const Group& group : grouping.groups) all.runs.push_back(json_of(group, grouping.apart));
  all.paired = pairs_with_base(grouping, base);
  all.remarks = remarks_on(grouping, base, all.paired);
  return all;
}

void print(const Comparison& all) {
  print_runs(all.runs);
  print_pairs(all.paired);
  for (const ordered_json& remark : all.remarks)
    std::cout << "- " << remark["text"].get<std::string>() << '\n';
}

void print_json(Comparison all) {
  for (const Error& error : all.errors) {
    all.remarks.push_back(
        {{"text", escape_controls(error.what())}, {"kind", "unreadable"}, {"groups", ordered_json::array()}});
  }
  const ordered_json json = {{"runs", all.runs}, {"paired", all.paired}, {"remarks", all.remarks}};
  std::cout << json.dump(2, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) << '\n';
}

Exit run(const CommandLine& line) {
  const Comparison all = compare(line.positionals(), line.text_of("base"));
  line.has("json") ? print_json(all) : line.has("csv") ? print_csv(all.runs) : print(all);
  for (const Error& error : all.errors) print_error(error.what());
  return all.errors.empty() ? Exit::ok : Exit::failure;
}

}  // namespace

void print_comparison(const std::vector<std::string>& runs) { print(compare(runs, std::nullopt)); }

const Command compare_command = {
    .name = "compare",
    .arguments = "RUN...",
    .purpose = "runs side by side, and what can be said of them",
    .details =
        "Runs, or folders of runs, named by the keys in which they differ. Runs that differ in seed alone\n"
        "become mean ± spread (sample standard deviation); configs that share seeds are compared seed by\n"
        "seed. Then what sets the configs apart, what stands out, and what cannot be concluded.\n"
        "Losses in nats per character; grad first/last: gradient norm of block 1 over that of block L;\n"
        "growth: rms of the stream after block L over that before block 1.",
    .options = {{"base", "NAME",
                 "the run, by folder or label, that others are set against (default: the first)"},
                {"csv", "", "the table, comma-separated"},
                {"json", "", "the whole comparison, for programs"}},
    .run = run};

}  // namespace normscope
