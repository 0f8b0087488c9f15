// normscope explain: a norm's arithmetic with its numbers, a placement's equations, a config's blocks.
#include "cli/explain.h"

#include <cmath>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "core/text.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using Vector = std::vector<double>;

void list_all() {
  const auto list = [](const char* title, const auto& table) {
    std::cout << title << '\n';
    for (const auto& row : table) std::cout << "  " << aligned_left(row.name, 14) << row.formula << '\n';
  };
  list("norms (--norm NAME shows the arithmetic, of --vector 1,2,3,4 if you like)", norm_table());
  list("\nplacements (--placement NAME shows the equations; F is attention, then the FFN)",
       placement_table());
  std::cout << "\n`normscope explain CONFIG` shows a config's own blocks.\n";
}

Vector parse_vector(const std::string& option, const std::string& list) {
  constexpr std::size_t max_count = 65536;
  Vector values;
  for (const std::string& part : split(list)) {
    char* end = nullptr;
    const double value = std::strtod(part.c_str(), &end);
    if (part.empty() || *end != '\0' || !std::isfinite(value))
      refuse("explain", option, ": got '", escape_controls(part),
             "'; expected numbers with commas, such as 1,2,3,4");
    values.push_back(value);
  }
  if (values.size() > max_count)
    refuse("explain", option, ": got ", values.size(), " numbers; expected 1 to ", max_count);
  return values;
}

// "1,2;3,4": semicolons separate tokens, commas features.
Numbers parse_matrix(const std::string& list) {
  Numbers matrix;
  for (const std::string& line : split(list, ';')) {
    const Vector row = parse_vector("--matrix", line);
    const std::ptrdiff_t cols = std::ssize(row);
    if (matrix.rows > 0 && cols != matrix.cols)
      refuse("explain", "--matrix: row ", matrix.rows + 1, " has ", cols, " numbers; expected ", matrix.cols);
    ++matrix.rows;
    matrix.cols = cols;
    matrix.values.insert(matrix.values.end(), row.begin(), row.end());
  }
  return matrix;
}

void explain_matrix(const Numbers& x, const std::optional<NormKind>& only, const Affine& affine) {
  std::cout << "tokens down, features across; one sequence, so that batch and instance norm are one here:\n";
  for (std::ptrdiff_t r = 0; r < x.rows; ++r) {
    std::cout << "   ";
    for (std::ptrdiff_t c = 0; c < x.cols; ++c) std::cout << ' ' << shown_number(x.values[r * x.cols + c]);
    std::cout << '\n';
  }
  for (const NormRow& row : norm_table()) {
    if (only ? row.kind != *only : row.kind == NormKind::none) continue;
    std::cout << '\n';
    // Of all norms, those without gain or bias ignore it; a single one refuses it.
    explain_axis(
        row.kind, x,
        {only || row.has_gain ? affine.gain : Vector{}, only || row.has_bias ? affine.bias : Vector{}});
  }
}

void explain_all() {
  const Vector example = {1, 2, 3, 4};
  for (const NormRow& row : norm_table()) {
    explain_norm(row.kind, example, {});
    if (&row == &norm_table().front()) explain_scaling(example);
    std::cout << '\n';
  }
  explain_matrix(parse_matrix("1,2,3,6;2,2,4,0;9,5,1,3"), {}, {});
  for (const Placement& row : placement_table()) {
    std::cout << '\n';
    explain_placement(row);
  }
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
  if (line.has("all")) {
    for (const char* other : {"norm", "placement", "vector", "matrix", "gain", "bias"})
      if (line.has(other)) refuse("explain", "--all explains everything; leave out --", other);
    if (!line.positionals().empty()) refuse("explain", "--all takes no CONFIG");
    explain_all();
    return Exit::ok;
  }
  const auto vector_of = [&](const char* name) {
    return line.has(name) ? parse_vector(std::string("--") + name, *line.text_of(name)) : Vector{};
  };
  const Affine affine = {vector_of("gain"), vector_of("bias")};
  std::optional<NormKind> norm;
  if (line.has("norm")) norm = parse_name<NormKind>("norm", *line.text_of("norm"));
  const bool numbers = line.has("vector") || line.has("gain") || line.has("bias"),
             matrix = line.has("matrix");
  const bool worked = matrix || numbers || norm;
  const std::optional<std::string> placement = line.text_of("placement");
  if (matrix) {
    explain_matrix(parse_matrix(*line.text_of("matrix")), norm, affine);
  } else if (numbers || norm) {
    const Vector x = parse_vector("--vector", line.text_of("vector").value_or("1,2,3,4"));
    explain_norm(norm.value_or(NormKind::layernorm), x, affine);
    explain_scaling(x);
  }
  if (placement) {
    if (worked) std::cout << '\n';
    explain_placement(placement_row(parse_name<PlacementKind>("placement", *placement)));
  }
  if (!line.positionals().empty()) {
    if (worked || placement) std::cout << '\n';
    explain_config(load_config(line.positionals()[0], line.all_of("set"), {.need_data = false}).config);
  } else if (!worked && !placement) {
    list_all();
  }
  return Exit::ok;
}

}  // namespace

const Command explain_command = {
    .name = "explain",
    .arguments = "[CONFIG]",
    .purpose = "a norm's arithmetic, a placement's equations, a config's blocks",
    .details =
        "Works a norm out step by step, writes out a placement, or says what a config's blocks compute and\n"
        "how many parameters they have. Without arguments: a list of all.",
    .options = {{"norm", "NAME", "a norm, with its numbers worked out"},
                {"vector", "LIST", "the numbers to normalise (default: 1,2,3,4)"},
                {"matrix", "ROWS", "tokens x features, \"1,2;3,4\": by each norm, or by --norm"},
                {"gain", "LIST", "its gains (default: 1)"},
                {"bias", "LIST", "its biases (default: 0)"},
                {"all", "", "every norm, worked out, the same matrix by each, and every placement"},
                {"placement", "NAME", "a placement and its equations"},
                set_option},
    .run = run};

}  // namespace normscope
