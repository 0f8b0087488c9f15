// normscope compare RUN...: runs side by side, seeds of one config together, and the conclusions.
#include "cli/compare.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/text.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::ordered_json;

// The columns before the figures: title, name in CSV and JSON.
constexpr std::pair<const char*, const char*> facts[] = {{"placement", "placement"},
                                                         {"norm", "norm"},
                                                         {"L", "n_layer"},
                                                         {"params", "params"},
                                                         {"status", "status"}};

// A group as JSON, from which text and CSV are printed too. NaN becomes null.
ordered_json json_of(const Group& group, const Group& base) {
  ordered_json seeds, folders, figures, choices = ordered_json::array();
  std::map<std::string, std::size_t> times;
  for (const RunRecord& run : group.runs) {
    seeds.push_back(run.config.train.seed);
    folders.push_back(run.folder);
    ++times[escape_controls(run.status)];
  }
  std::vector<std::string> status;
  for (const auto& [name, count] : times) status.push_back((times.size() > 1 ? text(count, ' ') : "") + name);
  std::vector<std::string> placement;
  for (const BlockPlacement& block : group.config().model.norm_placement)
    placement.push_back(placement_name(block));
  for (const KeyChange& change : config_diff(base, group)) {
    if (!change.is_derived) choices.push_back(change.field->key);
  }
  for (const RecordField& field : fields_by(&RecordField::compare)) {
    const Metric metric = group.metric(field.figure());
    figures[field.key] = {{"title", field.title},
                          {"mean", metric.mean()},
                          {"sd", metric.stddev()},
                          {"n", metric.values.size()},
                          {"text", metric_text(metric, field.digits)}};
  }
  return {{"label", group.label},
          {"keys", group.labelled_keys},
          {"choices", choices},
          {"seeds", seeds},
          {"folders", folders},
          {"placement", join(placement, "+")},
          {"norm", name_of(group.config().model.norm)},
          {"n_layer", group.config().model.n_layer},
          {"params", group.runs[0].params},
          {"status", join(status)},
          {"figures", figures}};
}

std::string cell_text(const ordered_json& cell) {
  const std::string written = cell.is_string() ? cell.get<std::string>() : json_line(cell);
  return written == "null" ? "" : written;  // as NaN is written
}

// A column that is the same for all of more than two groups becomes a line below the table.
void print_runs(const ordered_json& runs) {
  Columns table;
  std::vector<std::string> common;
  const auto add = [&](const std::string& title, const auto& cell_of) {
    std::vector<std::string> cells = {title};
    for (const ordered_json& run : runs) cells.push_back(cell_of(run));
    const bool is_common = runs.size() > 2 && std::ranges::count(cells, cells[1]) == std::ssize(runs);
    is_common ? common.push_back(title + " " + cells[1]) : table.push_back(cells);
  };
  add("run", [](const ordered_json& run) {
    const std::size_t seeds = run["seeds"].size();
    return cell_text(run["label"]) + (seeds > 1 ? text(" x", seeds, " seeds") : "");
  });
  for (const auto& [title, name] : facts)
    add(title, [key = name](const ordered_json& run) {
      return run[key].is_number() ? grouped(run[key].get<Index>()) : cell_text(run[key]);
    });
  for (const auto& [name, figure] : runs[0]["figures"].items())
    add(figure["title"],
        [key = name](const ordered_json& run) { return cell_text(run["figures"][key]["text"]); });
  print_table(table);
  std::cout << (common.empty() ? "" : "all: " + join(common) + "\n") << '\n';
}

void print_pairs(const ordered_json& pairs) {
  if (pairs.empty()) return;
  Columns table;
  for (const ordered_json& pair : pairs)
    add_row(table, {"  " + cell_text(pair["group"]), pair["difference"], pair["text"]});
  std::cout << "final val minus that of " << cell_text(pairs[0]["base"])
            << ", seed by seed, mean ± standard error:\n";
  print_table(table);
  std::cout << '\n';
}

void print_csv(const ordered_json& runs) {
  std::optional<CsvRows> rows;
  for (const ordered_json& run : runs) {
    std::vector<std::string> names = {"run", "seeds"};
    std::vector<ordered_json> cells = {run["label"], run["seeds"].size()};
    for (const auto& [title, name] : facts) names.emplace_back(name), cells.push_back(run[name]);
    for (const auto& [name, figure] : run["figures"].items()) {
      names.insert(names.end(), {name, name + "_spread"});
      cells.insert(cells.end(), {figure["mean"], figure["sd"]});
    }
    if (!rows) std::cout << rows.emplace(names).header();
    for (const ordered_json& cell : cells) rows->cell(cell_text(cell));
    rows->end_row();
  }
  std::cout << rows->text();
}

// The runs of the arguments, each once. Those that cannot be read are reported in `errors`.
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
const Group& base_of(const std::vector<Group>& groups, const std::optional<std::string>& name) {
  if (!name) return groups[0];
  const auto normal = [](const std::string& path) {  // without a slash at the end
    const std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
    return folder.has_filename() ? folder : folder.parent_path();
  };
  std::vector<std::string> labels;
  for (const Group& group : groups) {
    const bool has_run = std::ranges::any_of(group.runs, [&](const RunRecord& run) {
      const std::filesystem::path folder = normal(run.folder);
      return folder == normal(*name) || folder.filename() == *name;
    });
    if (group.label == *name || has_run) return group;
    labels.push_back(group.label);
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
  const std::vector<Group> groups = group_by_config(read_runs(arguments, all.errors));
  const Group& base = base_of(groups, base_name);
  for (const Group& group : groups) all.runs.push_back(json_of(group, base));
  all.paired = pairs_with_base(groups, base);
  all.remarks = remarks_on(groups, base, all.paired.size());
  for (const Error& error : all.errors)
    all.remarks.push_back(
        {{"text", escape_controls(error.what())}, {"kind", "unreadable"}, {"groups", ordered_json::array()}});
  return all;
}

void print(const Comparison& all) {
  print_runs(all.runs);
  print_pairs(all.paired);
  for (const ordered_json& remark : all.remarks) {
    if (remark["kind"] != "unreadable") std::cout << "- " << cell_text(remark["text"]) << '\n';
  }
}

void print_json(const Comparison& all) {
  const ordered_json json = {{"runs", all.runs}, {"paired", all.paired}, {"remarks", all.remarks}};
  std::cout << json_text(json);
}

Exit run(const CommandLine& line) {
  line.require_one("csv", "json");
  const Comparison all = compare(line.positionals(), line.text_of("base"));
  line.has("json") ? print_json(all) : line.has("csv") ? print_csv(all.runs) : print(all);
  for (const Error& error : all.errors) print_error(error.what());
  return all.errors.empty() ? Exit::ok : Exit::failure;
}

}  // namespace

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
