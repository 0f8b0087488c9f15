// normscope compare RUN...: runs side by side, seeds of one config together, and what can be said of them.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "config/dump.h"
#include "config/names.h"
#include "core/error.h"
#include "data/corpus.h"
#include "data/ngram.h"
#include "io/utf8.h"
#include "train/run_record.h"

namespace normscope {
namespace {

constexpr double small_branch = 0.05;  // of the stream: below it the place of a norm hardly matters
constexpr double unigram_tolerance =
    0.08;  // nats: this near to the unigram level, only letter counts are learnt

// Mean and sample standard deviation of what some runs say of one figure; runs that say nothing are left out.
struct Figure {
  std::vector<double> values;

  bool known() const { return !values.empty(); }
  double mean() const {
    double sum = 0;
    for (const double v : values) sum += v;
    return sum / static_cast<double>(values.size());
  }
  std::optional<double> spread() const {
    if (values.size() < 2) return std::nullopt;
    double squares = 0;
    for (const double v : values) squares += (v - mean()) * (v - mean());
    return std::sqrt(squares / static_cast<double>(values.size() - 1));
  }
};

constexpr int significant = -1;  // three significant digits: ratios may span many powers of ten

struct Column {
  const char* title;  // in the table
  const char* csv_name;
  std::optional<double> RunRecord::*member;
  int digits;  // after the point; or `significant`
};
constexpr Column columns[] = {
    {"best val", "best_val_loss", &RunRecord::best_val_loss, 4},
    {"final val", "final_val_loss", &RunRecord::final_val_loss, 4},
    {"final train", "final_train_loss", &RunRecord::final_train_loss, 4},
    {"grad first/last", "grad_first_last", &RunRecord::grad_first_last, significant},
    {"growth", "growth", &RunRecord::growth, significant},
    {"tokens/s", "tokens_per_s", &RunRecord::tokens_per_s, 0},
};

// Runs whose configs differ in nothing but seed and name.
struct Group {
  std::string label;
  std::vector<RunRecord> runs;

  const ModelConfig& model() const { return runs[0].config.model; }
  Figure figure(std::optional<double> RunRecord::*member) const {
    Figure figure;
    for (const RunRecord& run : runs) {
      if (run.*member) figure.values.push_back(*(run.*member));
    }
    return figure;
  }
  std::string placement() const {
    std::string names;
    for (const PlacementKind kind : model().norm_placement)
      names += (names.empty() ? "" : "+") + std::string(name_of(kind));
    return names;
  }
  std::string status() const {
    std::map<std::string, int> counts;
    for (const RunRecord& run : runs) ++counts[run.status];
    if (counts.size() == 1) return counts.begin()->first;
    std::string all;
    for (const auto& [status, count] : counts) all += text(all.empty() ? "" : ", ", count, ' ', status);
    return all;
  }
};

// The last part of a folder's path, "pre" of "runs/pre/".
std::string folder_name(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::vector<Group> group_by_config(const std::vector<RunRecord>& runs) {
  std::vector<Group> groups;
  for (const RunRecord& run : runs) {
    const auto same = [&](const Group& group) {
      const std::vector<Difference> differences = keys_that_differ(group.runs[0].config, run.config);
      return std::all_of(differences.begin(), differences.end(),
                         [](const Difference& d) { return d.key == "train.seed" || d.key == "name"; });
    };
    const auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found != groups.end()) {
      found->runs.push_back(run);
    } else {
      groups.push_back({folder_name(run.folder), {run}});
    }
  }
  for (Group& group : groups) {  // a/pre and b/pre: the last part alone would not tell them apart
    const auto same_name = [&](const Group& other) {
      return folder_name(other.runs[0].folder) == group.label;
    };
    if (std::count_if(groups.begin(), groups.end(), same_name) > 1) group.label = group.runs[0].folder;
  }
  for (Group& group : groups) {
    if (group.runs.size() > 1) group.label += text(" x", group.runs.size(), " seeds");
  }
  return groups;
}

std::string cell(const Figure& figure, int digits) {
  if (!figure.known()) return "-";
  const auto number = [&](double v) {
    return digits == significant ? significant_text(v) : digits == 0 ? short_number(v) : fixed(v, digits);
  };
  const std::optional<double> spread = figure.spread();
  return number(figure.mean()) + (spread ? " ± " + number(*spread) : "");
}

std::size_t shown_width(const std::string& cell) {  // characters, not bytes: ± has two
  return static_cast<std::size_t>(
      std::count_if(cell.begin(), cell.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void print_table(const std::vector<Group>& groups) {
  std::vector<std::vector<std::string>> rows = {{"run", "placement", "norm", "L", "params", "status"}};
  for (const Column& column : columns) rows[0].push_back(column.title);
  for (const Group& group : groups) {
    std::vector<std::string> row = {printable(group.label),
                                    group.placement(),
                                    name_of(group.model().norm),
                                    std::to_string(group.model().n_layer),
                                    short_number(static_cast<double>(group.runs[0].params)),
                                    group.status()};
    for (const Column& column : columns) row.push_back(cell(group.figure(column.member), column.digits));
    rows.push_back(std::move(row));
  }
  constexpr std::size_t first_number = 3;  // numbers stand to the right of their column, words to the left
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      std::size_t width = 0;
      for (const std::vector<std::string>& other : rows) width = std::max(width, shown_width(other[c]));
      const std::string pad(width - shown_width(row[c]), ' ');
      line += c >= first_number && c != 5 ? pad + row[c] : row[c] + pad;
      if (c + 1 < row.size()) line += "  ";
    }
    std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

// The shortest digits that read back as the same number.
std::string csv_number(std::optional<double> value) {
  if (!value) return "";
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), *value).ptr};
}

std::string csv_text(const std::string& value) {
  if (value.find_first_of(",\"") == std::string::npos) return value;
  std::string quoted = "\"";
  for (const char c : value) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

void print_csv(const std::vector<Group>& groups) {
  std::cout << "run,seeds,placement,norm,n_layer,params,status";
  for (const Column& column : columns)
    std::cout << ',' << column.csv_name << ',' << column.csv_name << "_spread";
  std::cout << '\n';
  for (const Group& group : groups) {
    std::cout << csv_text(printable(group.label)) << ',' << group.runs.size() << ',' << group.placement()
              << ',' << name_of(group.model().norm) << ',' << group.model().n_layer << ','
              << group.runs[0].params << ',' << csv_text(group.status());
    for (const Column& column : columns) {
      const Figure figure = group.figure(column.member);
      std::cout << ',' << csv_number(figure.known() ? std::optional(figure.mean()) : std::nullopt) << ','
                << csv_number(figure.known() ? figure.spread() : std::nullopt);
    }
    std::cout << '\n';
  }
}

// The unigram level of a run's validation split; nothing where its corpus cannot be read any more.
std::optional<double> unigram_level(const RunConfig& config) {
  try {
    const Corpus corpus = corpus_of(config);
    if (corpus.val.size() < 2) return std::nullopt;
    return ngram_baselines(corpus.train, corpus.val, corpus.vocab.size())[1].nats;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What stands out, and what cannot be concluded.
void print_remarks(const std::vector<Group>& groups) {
  for (std::size_t i = 1; i < groups.size(); ++i) {
    std::string keys;
    for (const Difference& d : keys_that_differ(groups[0].runs[0].config, groups[i].runs[0].config)) {
      if (d.key != "name" && d.key != "train.seed")
        keys += text(keys.empty() ? "" : ", ", d.key, " ", d.values);
    }
    std::cout << "- " << printable(groups[i].label) << " differs from " << printable(groups[0].label)
              << " in: " << keys << '\n';
  }
  const std::optional<double> unigram = unigram_level(groups[0].runs[0].config);
  for (const Group& group : groups) {
    const Figure loss = group.figure(&RunRecord::final_val_loss);
    if (unigram && loss.known() && std::abs(loss.mean() - *unigram) < unigram_tolerance) {
      std::cout << "- " << printable(group.label) << " stands at the unigram level (" << fixed(*unigram, 2)
                << " nats): it has learnt how often each character occurs and nothing of their order\n";
    }
    const Figure share = group.figure(&RunRecord::branch_share);
    if (share.known() && share.mean() < small_branch) {
      std::cout << "- " << printable(group.label) << ": at the start a branch is "
                << fixed(100 * share.mean(), 1)
                << "% of the stream it is added to; so small that the norms' place can hardly matter\n";
    }
  }
  const bool single =
      std::any_of(groups.begin(), groups.end(), [](const Group& g) { return g.runs.size() == 1; });
  if (groups.size() > 1 && single) {
    std::cout
        << "- one seed a config: small differences may be chance; more seeds (--set train.seed=2 --out ...) "
           "become mean ± spread here\n";
  }
}

}  // namespace

int compare_command(int argc, char** argv) {
  CommandLine line(
      "compare",
      "Runs, or folders of runs, side by side. Runs that differ only in seed become mean ± spread.\n"
      "Losses in nats per character; grad first/last: gradient norm of block 1 over that of block L;\n"
      "growth: rms of the stream after block L over that before block 1.",
      "RUN...");
  line.flag("csv", "comma-separated, for programs");
  if (!line.parse(argc, argv, 1, 100000)) return 0;

  std::vector<RunRecord> runs;
  std::set<std::filesystem::path> seen;  // a run that is named twice is still one run
  for (const std::string& argument : line.positionals()) {
    for (const std::string& folder : run_folders(argument)) {
      if (seen.insert(std::filesystem::canonical(folder)).second) runs.push_back(read_run(folder));
    }
  }
  const std::vector<Group> groups = group_by_config(runs);
  if (line.has("csv")) {
    print_csv(groups);
  } else {
    print_table(groups);
    std::cout << '\n';
    print_remarks(groups);
  }
  return static_cast<int>(Exit::ok);
}

}  // namespace normscope
