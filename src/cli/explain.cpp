// normscope explain: a norm's arithmetic with its numbers, a placement's equations, a config's blocks, and
// the lesson that puts them together.
#include "cli/explain.h"

#include <cmath>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "core/text.h"

namespace normscope {
namespace {

void heading(const char* title, const char* why) {
  std::cout << "\n== " << title << " ==\n" << why << "\n\n";
}

void explain_all() {
  const Vector x = {1, 2, 3, 4};
  heading(
      "1. Layer norm, step by step",
      "It makes a token's features comparable whatever their size: deep sums neither explode nor vanish.");
  explain_norm(norm_row(NormKind::layernorm), x, {});
  explain_scaling(x);
  heading("2. RMSNorm, DyT and Derf: how much of it is needed?",
          "RMSNorm leaves out the mean; DyT and Derf leave out statistics and only squash.");
  for (const NormKind kind : {NormKind::rmsnorm, NormKind::dyt, NormKind::derf}) {
    explain_norm(norm_row(kind), x, {});
    std::cout << '\n';
  }
  std::cout << "  try: normscope train configs/deep_pre.json --set model.norm=rmsnorm\n";
  heading("3. Axes: which numbers share a mean and a variance",
          "Two sequences of two tokens of four features. Norms over other tokens leak the future of a text.");
  const Numbers batch{4, 4, 2, {1, 2, 3, 6, 2, 2, 4, 0, 9, 5, 1, 3, 0, 4, 8, 2}};
  std::cout << "x:\n";
  print_numbers(batch);
  for (const NormKind kind :
       {NormKind::layernorm, NormKind::groupnorm, NormKind::batchnorm, NormKind::instancenorm})
    explain_axes(norm_row(kind), batch);
  std::cout
      << "\n  try: normscope check configs/deep_pre.json --set model.norm=batchnorm  (causality fails)\n";
  heading("4. Running statistics of batch norm",
          "A single text has no batch, so evaluation uses averages of training: new = 0.9·old + 0.1·batch.");
  explain_running_statistics();
  heading("5. Where the norm sits",
          "F is attention, then the FFN. The 1 in dx carries the gradient past F; a norm on the sum is in "
          "its way.");
  for (const PlacementKind kind : {PlacementKind::pre, PlacementKind::post, PlacementKind::sandwich,
                                   PlacementKind::res_post, PlacementKind::deepnorm, PlacementKind::none}) {
    explain_placement(placement_row(kind));
    std::cout << '\n';
  }
  std::cout << "  try: scripts/quickstart.sh  (pre learns, post stays at letter frequencies)\n";
  heading(
      "6. Without the residual, and without norms",
      "y = F(N(x)) has dx = F′·N′·dy: block after block of factors, and no 1. Without norms every block\n"
      "multiplies the stream and its gradient by a factor of its own, so both explode or vanish with depth.");
  std::cout << "  try: normscope probe configs/deep_pre.json --set model.residual=false\n"
               "  try: normscope probe configs/deep_pre.json --set model.norm=none\n";
}

void list_all() {
  const auto list = [](const char* title, const auto& table) {
    std::cout << title << '\n';
    for (const auto& row : table) std::cout << "  " << aligned_left(row.name, 14) << row.formula << '\n';
  };
  list("norms (--norm NAME shows the arithmetic, of --vector 1,2,3,4 if you like)", norm_table());
  list("\nplacements (--placement NAME shows the equations; F is attention, then the FFN)",
       placement_table());
  std::cout
      << "\n`normscope explain CONFIG` shows a config's own blocks, `normscope explain --all` the lesson.\n";
}

// "1,2;3,4": semicolons separate tokens, commas features.
Numbers parse_numbers(const std::string& option, const std::string& list) {
  constexpr double max_number = 1e150;  // larger ones overflow when they are squared
  std::vector<double> values;
  Index rows = 0, cols = 0;
  for (const std::string& line : split(list, ';')) {
    const std::vector<std::string> row = split(line);
    if (rows++ > 0 && std::ssize(row) != cols)
      refuse("explain", "--", option, ": row ", rows, " has ", row.size(), " numbers; expected ", cols);
    cols = std::ssize(row);
    for (const std::string& part : row) {
      char* end = nullptr;
      values.push_back(std::strtod(part.c_str(), &end));
      if (part.empty() || *end != '\0' || !(std::abs(values.back()) <= max_number))
        refuse("explain", "--", option, ": got '", part, "'; expected numbers up to ", max_number,
               " with commas, such as 1,2,3,4");
    }
  }
  return {rows, cols, rows, Vector(values.data(), values.size())};
}

// The row that an option names; the option's default is the table's first.
const auto& row_of(const CommandLine& line, const std::string& option, const auto& table) {
  const std::string name = line.text_of(option).value_or(table[0].name);
  std::vector<std::string> names;
  for (const auto& row : table) {
    if (name == row.name) return row;
    names.push_back(row.name);
  }
  const std::string meant = nearest(name, names);
  refuse("explain", "--", option, ": unknown name ", name, "; ",
         meant.empty() ? "`normscope explain` lists all" : "did you mean " + meant + "?");
}

Exit run(const CommandLine& line) {
  if (line.has("set") && line.positionals().empty()) refuse("explain", "--set needs a CONFIG to change");
  if (line.has("matrix") && line.has("vector")) refuse("explain", "give --matrix or --vector, not both");
  if (line.has("all")) return explain_all(), Exit::ok;
  const auto numbers_of = [&](const std::string& option) {
    const std::optional<std::string> list = line.text_of(option);
    if (!list) return Vector{};
    const Numbers numbers = parse_numbers(option, *list);
    if (numbers.rows > 1)
      refuse("explain", "--", option, ": got ", numbers.rows, " rows; expected one, or --matrix");
    return numbers.values;
  };
  const Affine affine = {numbers_of("gain"), numbers_of("bias")};
  const bool has_affine = line.has("gain") || line.has("bias");
  const NormRow& norm = row_of(line, "norm", norm_table());
  if (line.has("matrix")) {
    if (has_affine && !line.has("norm")) refuse("explain", "--gain and --bias of a --matrix need a --norm");
    const Numbers x = parse_numbers("matrix", *line.text_of("matrix"));
    std::cout << "tokens down, features across:\n";
    print_numbers(x);
    for (const NormRow& row : norm_table())
      if (line.has("norm") ? row.kind == norm.kind : row.kind != NormKind::none) explain_axes(row, x, affine);
  } else if (line.has("norm") || line.has("vector") || has_affine) {
    const Vector x = line.has("vector") ? numbers_of("vector") : Vector{1, 2, 3, 4};
    explain_norm(norm, x, affine);
    explain_scaling(x);
  } else if (!line.has("placement") && line.positionals().empty()) {
    list_all();
  }
  if (line.has("placement")) explain_placement(row_of(line, "placement", placement_table()));
  if (!line.positionals().empty())
    explain_config(load_config(line.positionals()[0], line.all_of("set"), {.need_data = false}).config);
  return Exit::ok;
}

}  // namespace

const Command explain_command = {
    .name = "explain",
    .arguments = "[CONFIG]",
    .purpose = "a norm's arithmetic, a placement's equations, a config's blocks",
    .details =
        "Works a norm out step by step, writes out a placement, or shows what a config's blocks compute and\n"
        "how many parameters they have. Without arguments: a list of all.",
    .options = {{"norm", "NAME", "a norm, with its numbers worked out"},
                {"vector", "LIST", "the numbers to normalise (default: 1,2,3,4)"},
                {"matrix", "ROWS", "tokens x features, \"1,2;3,4\": by each norm, or by --norm"},
                {"gain", "LIST", "its gains; one number stands for all (default: 1)"},
                {"bias", "LIST", "its biases; one number stands for all (default: 0)"},
                {"all", "", "the lesson: norms, axes, placements, and what goes wrong without them"},
                {"placement", "NAME", "a placement and its equations"},
                set_option},
    .run = run};

}  // namespace normscope
