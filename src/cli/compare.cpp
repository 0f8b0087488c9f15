// normscope compare RUN...: runs side by side, seeds of one config together, and what can be said of them.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <set>

#include "cli/commands.h"
#include "cli/compare_groups.h"
#include "cli/compare_labels.h"
#include "cli/compare_remarks.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "config/names.h"
#include "core/error.h"
#include "io/utf8.h"
#include "train/run_record.h"

namespace normscope {
namespace {

enum class Digits { loss, ratio, speed };

struct Column {
  const char* title;  // in the table
  const char* csv_name;
  RunFigure member;
  Digits digits;
};
constexpr Column columns[] = {
    {"best val", "best_val_loss", &RunRecord::best_val_loss, Digits::loss},
    {"final val", "final_val_loss", &RunRecord::final_val_loss, Digits::loss},
    {"final train", "final_train_loss", &RunRecord::final_train_loss, Digits::loss},
    {"grad first/last", "grad_first_last", &RunRecord::grad_first_last, Digits::ratio},
    {"growth", "growth", &RunRecord::growth, Digits::ratio},
    {"tokens/s", "tokens_per_s", &RunRecord::tokens_per_s, Digits::speed},
};
constexpr double absurd_loss = 100;  // from here, of a run that diverged, digits after the point say nothing
constexpr double coarse_spread = 0.01;     // from here a mean's fourth digit says nothing
constexpr std::size_t widest_table = 124;  // characters; a wider one leaves out what all rows share

// Two significant digits: 0.29, 0.0048, 1.2e+04. Of a spread, more say nothing.
std::string two_digits(double value) {
  std::array<char, 64> out{};
  std::snprintf(out.data(), out.size(), "%.2g", value);
  return out.data();
}

std::string cell(const Figure& figure, Digits digits) {
  if (!figure.known()) return "-";
  const double mean = figure.mean();
  if (digits == Digits::speed)
    return short_number(mean);  // what else ran on the machine is no spread of seeds
  const std::optional<double> spread = figure.spread();
  const auto number = [&](double v) {
    if (digits == Digits::ratio || std::abs(mean) >= absurd_loss) return significant_text(v);
    return fixed(v, spread.value_or(0) >= coarse_spread ? 3 : 4);
  };
  if (!spread) return number(mean);
  return number(mean) + " ± " + (digits == Digits::ratio ? two_digits(*spread) : number(*spread));
}

using Rows = std::vector<std::vector<std::string>>;  // the titles first

std::vector<std::size_t> widths_of(const Rows& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], shown_width(row[c]));
  }
  return widths;
}

std::size_t table_width(const Rows& rows) {
  std::size_t total = 0;
  for (const std::size_t width : widths_of(rows)) total += width + 2;
  return total - 2;
}

// While the table is too wide: takes out columns of words that say the same in every row, or that a sweep's
// names say already. Returns what is the same, beside the parts that all names share.
std::vector<std::string> take_out_common(Rows& rows, const std::vector<std::string>& shared_parts) {
  struct Words {
    const char* title;
    const char* key;  // as a sweep's folder has it; null: never there
  };
  constexpr Words candidates[] = {{"params", nullptr},
                                  {"L", "n_layer"},
                                  {"norm", "norm"},
                                  {"status", nullptr},
                                  {"placement", "norm_placement"}};
  std::vector<std::string> common = shared_parts;
  for (const auto& [title, key] : candidates) {
    if (rows.size() < 3 || table_width(rows) <= widest_table) break;
    const auto c =
        static_cast<std::size_t>(std::find(rows[0].begin(), rows[0].end(), title) - rows[0].begin());
    const auto part = [&, key = key](const auto& row) { return text(key, '=', row[c]); };
    const auto every_row = [&](const auto& holds) {
      return std::all_of(rows.begin() + 1, rows.end(), holds);
    };
    const bool named = key != nullptr && every_row([&](const auto& row) {
                         return row[0].find(part(row)) != std::string::npos;
                       });
    const bool same = every_row([&](const auto& row) { return row[c] == rows[1][c]; });
    if (!named && !same) continue;
    const bool said = named || (key != nullptr && std::find(shared_parts.begin(), shared_parts.end(),
                                                            part(rows[1])) != shared_parts.end());
    if (!said) common.push_back(text(title, " ", rows[1][c]));
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(c));
  }
  return common;
}

void print_table(const std::vector<Group>& groups, const std::vector<std::string>& names,
                 const std::vector<std::string>& shared_parts) {
  Rows rows = {{"run", "placement", "norm", "L", "params", "status"}};
  for (const Column& column : columns) rows[0].push_back(column.title);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    std::vector<std::string> row = {names[g],
                                    group.placement(),
                                    name_of(group.model().norm),
                                    std::to_string(group.model().n_layer),
                                    short_number(static_cast<double>(group.runs[0].params)),
                                    printable(group.status())};
    for (const Column& column : columns) row.push_back(cell(group.figure(column.member), column.digits));
    rows.push_back(std::move(row));
  }
  const std::vector<std::string> common = take_out_common(rows, shared_parts);
  const std::vector<std::size_t> widths = widths_of(rows);
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string& title = rows[0][c];
      const bool words = title == "run" || title == "placement" || title == "norm" || title == "status";
      const std::string pad(widths[c] - shown_width(row[c]), ' ');
      line += words ? row[c] + pad : pad + row[c];
      if (c + 1 < row.size()) line += "  ";
    }
    std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
  for (std::size_t i = 0; i < common.size(); ++i) std::cout << (i == 0 ? "all: " : ", ") << common[i];
  if (!common.empty()) std::cout << '\n';
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
              << group.runs[0].params << ',' << csv_text(printable(group.status()));
    for (const Column& column : columns) {
      const Figure figure = group.figure(column.member);
      std::cout << ',' << csv_number(figure.known() ? std::optional(figure.mean()) : std::nullopt) << ','
                << csv_number(figure.known() ? figure.spread() : std::nullopt);
    }
    std::cout << '\n';
  }
}

}  // namespace

int compare_command(int argc, char** argv) {
  CommandLine line(
      "compare",
      "Runs, or folders of runs, side by side. Runs that differ only in seed become mean ± spread (sample\n"
      "standard deviation); configs that share seeds are compared seed by seed. Then what sets the configs\n"
      "apart, what stands out, and what cannot be concluded.\n"
      "Losses in nats per character; grad first/last: gradient norm of block 1 over that of block L;\n"
      "growth: rms of the stream after block L over that before block 1.",
      "RUN...");
  line.flag("csv", "comma-separated, for programs");
  if (!line.parse(argc, argv, 1, 100000)) return 0;

  std::vector<RunRecord> runs;
  std::string broken;                    // what is wrong with runs that cannot be read; the others are shown
  std::set<std::filesystem::path> seen;  // a run that is named twice is still one run
  for (const std::string& argument : line.positionals()) {
    for (const std::string& folder : run_folders(argument)) {
      if (!seen.insert(std::filesystem::canonical(folder)).second) continue;
      try {
        runs.push_back(read_run(folder));
      } catch (const Error& error) {
        broken += text(broken.empty() ? "" : "\n", error.what());
      }
    }
  }
  if (runs.empty()) throw Error(Exit::failure, broken);
  const std::vector<Group> groups = group_by_config(runs);
  if (line.has("csv")) {
    print_csv(groups);
  } else {
    std::vector<std::string> shared_parts;
    const std::vector<std::string> names = table_labels(groups, shared_parts);
    print_table(groups, names, shared_parts);
    std::cout << '\n';
    const Comparison comparison(groups, remark_labels(groups, names));
    const std::vector<std::string> pairs = comparison.paired_lines();
    for (const std::string& pair : pairs) std::cout << pair << '\n';
    if (!pairs.empty()) std::cout << '\n';
    for (const std::string& remark : comparison.remarks()) std::cout << "- " << remark << '\n';
  }
  if (!broken.empty()) print_error(broken);
  return static_cast<int>(broken.empty() ? Exit::ok : Exit::failure);
}

}  // namespace normscope
