// normscope explain: a norm's arithmetic with its numbers, a placement's equations, a config's blocks, and
// the lesson that puts them together.
#include "cli/explain.h"

#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "core/text.h"
#include "io/utf8.h"

namespace normscope {
namespace {

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
Numbers parse_matrix(const std::string& list, Index context = 0) {
  Numbers matrix{0, 0, context, {}};
  for (const std::string& line : split(list, ';')) {
    const std::vector<double> row = parse_numbers("--matrix", line);
    const Index cols = std::ssize(row);
    if (matrix.rows > 0 && cols != matrix.cols)
      refuse("explain", "--matrix: row ", matrix.rows + 1, " has ", cols, " numbers; expected ", matrix.cols);
    ++matrix.rows;
    matrix.cols = cols;
    matrix.values.insert(matrix.values.end(), row.begin(), row.end());
  }
  if (context == 0) matrix.context = matrix.rows;
  return matrix;
}

// The matrix by one norm, or by each.
void explain_matrix(const Numbers& x, const NormRow* only, const Affine& affine) {
  std::cout << "tokens down, features across:\n";
  print_numbers(x);
  for (const NormRow& row : norm_table()) {
    if (only != nullptr ? &row != only : row.kind == NormKind::none) continue;
    // All norms together: those without gain or bias ignore it; a single one refuses it.
    const bool gain = only || row.has_gain, bias = only || row.has_bias;
    std::cout << '\n';
    explain_axes(row, x,
                 {gain ? affine.gain : std::vector<double>{}, bias ? affine.bias : std::vector<double>{}});
  }
}

void heading(const char* title, const char* why) {
  std::cout << "\n== " << title << " ==\n" << why << "\n\n";
}

void explain_all() {
  const std::vector<double> x = {1, 2, 3, 4};
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
  const Numbers batch = parse_matrix("1,2,3,6;2,2,4,0;9,5,1,3;0,4,8,2", 2);
  std::cout << "x:\n";
  print_numbers(batch);
  for (const NormKind kind :
       {NormKind::layernorm, NormKind::groupnorm, NormKind::batchnorm, NormKind::instancenorm}) {
    std::cout << '\n';
    explain_axes(norm_row(kind), batch, {});
  }
  std::cout
      << "\n  try: normscope check configs/deep_pre.json --set model.norm=batchnorm  (causality fails)\n";
  heading("4. Running statistics of batch norm",
          "A single text has no batch, so evaluation uses averages of training: new = 0.9·old + 0.1·batch.");
  explain_running_statistics(x);
  heading("5. Where the norm sits",
          "F is attention, then the FFN. The 1 in dx carries the gradient past F; a norm on the sum is in "
          "its way.");
  for (const char* name : {"pre", "post", "sandwich", "res_post", "deepnorm", "none"}) {
    for (const Placement& row : placement_table()) {
      if (row.name != std::string_view(name)) continue;
      explain_placement(row);
      std::cout << '\n';
    }
  }
  std::cout << "  try: scripts/quickstart.sh  (pre learns, post stays at letter frequencies)\n";
  heading(
      "6. Without the residual, and without norms",
      "y = F(N(x)) has dx = F′·N′·dy: block after block of factors, and no 1. Without norms every block\n"
      "multiplies the stream and its gradient by a factor of its own, so both explode or vanish with depth.");
  std::cout << "  try: normscope probe configs/deep_pre.json --set model.residual=false\n"
               "  try: normscope probe configs/deep_pre.json --set model.norm=none\n";
}

template <class Enum>
Enum parse_name(const std::string& option, const std::string& name) {
  const Names known = enum_names(Enum{});
  const auto found = std::ranges::find(known, name);
  if (found != known.end()) return static_cast<Enum>(found - known.begin());
  const std::string meant = nearest(name, known);
  refuse("explain", "--", option, ": unknown name ", escape_controls(name), "; ",
         meant.empty() ? "`normscope explain` lists all" : "did you mean " + meant + "?");
}

Exit run(const CommandLine& line) {
  if (line.has("set") && line.positionals().empty()) refuse("explain", "--set needs a CONFIG to change");
  line.require_one("matrix", "vector");
  if (line.has("all")) return explain_all(), Exit::ok;
  const auto numbers_of = [&](const char* name, const char* otherwise = "") {
    const std::string list = line.text_of(name).value_or(otherwise);
    return list.empty() && !line.has(name) ? std::vector<double>{}
                                           : parse_numbers(std::string("--") + name, list);
  };
  const Affine affine = {numbers_of("gain"), numbers_of("bias")};
  const NormRow* norm =
      line.has("norm") ? &norm_row(parse_name<NormKind>("norm", *line.text_of("norm"))) : nullptr;
  if (line.has("matrix")) {
    explain_matrix(parse_matrix(*line.text_of("matrix")), norm, affine);
  } else if (norm != nullptr || line.has("vector") || line.has("gain") || line.has("bias")) {
    const std::vector<double> x = numbers_of("vector", "1,2,3,4");
    explain_norm(norm != nullptr ? *norm : norm_row(NormKind::layernorm), x, affine);
    explain_scaling(x);
  } else if (!line.has("placement") && line.positionals().empty()) {
    list_all();
  }
  if (line.has("placement"))
    explain_placement(placement_row(parse_name<PlacementKind>("placement", *line.text_of("placement"))));
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
