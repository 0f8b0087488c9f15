// normscope explain: norms worked out with numbers.
#include "cli/explain.h"

#include <cmath>
#include <iostream>
#include <valarray>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/fields.h"
#include "config/load.h"
#include "config/patterns.h"
#include "core/text.h"
#include "kernels/rows.h"
#include "model/norms.h"

namespace normscope {
namespace {

using Vector = std::valarray<double>;

constexpr double eps = 1e-5, alpha = 0.5;  // the defaults of norm_eps and of DyT's and Derf's α

// The tokens (rows) of a sequence x features (columns).
struct Numbers {
  Index rows, cols;
  Vector values;
};

// A line of arithmetic, "name  formula  = values".
struct Step {
  std::string name, formula;
  Vector values;
};
using Steps = std::vector<Step>;

// γ and β of each feature; a single number stands for all.
struct Affine {
  Vector gain = {1.0}, bias = {0.0};
};

// What the engine's kernels compute of x: x̂, and the mean and 1/√(variance + ε) of each group of numbers that
// share them.
struct Normalised {
  Vector x_hat, mean, rstd;
};

Normalised normalise(const NormRow& row, const Numbers& x) {
  const bool over_tokens = row.over == NormOver::batch || row.over == NormOver::sequence;
  const Index groups = row.over == NormOver::groups && x.cols % 2 == 0 ? 2 : 1;
  const Index count = over_tokens ? x.cols : x.rows * groups;
  Normalised y{x.values, Vector(count), Vector(count)};
  const double* in = &x.values[0];
  double *out = &y.x_hat[0], *mean = &y.mean[0], *rstd = &y.rstd[0];
  if (row.has_alpha) {
    const PointwiseFn function = row.has_shift ? PointwiseFn::erf : PointwiseFn::tanh;
    pointwise_norm_forward<double>(
        {.rows = x.rows, .cols = x.cols, .alpha = alpha, .x = in, .function = function}, out);
  } else if (over_tokens) {
    BatchNorm<double> norm{x.rows, eps};
    norm.rows = x.rows, norm.cols = x.cols, norm.x = in, norm.mean = mean, norm.rstd = rstd;
    batch_norm_forward(norm, out);
  } else if (row.has_statistics()) {
    LayerNorm<double> norm{groups, row.centred, eps};
    norm.rows = x.rows, norm.cols = norm.stride = x.cols, norm.x = in, norm.mean = mean, norm.rstd = rstd;
    layer_norm_forward(norm, out);
  }
  return y;
}

// The variance, or for RMS norm the mean square, behind 1/√(variance + ε).
Vector variance_of(const Vector& rstd) {
  constexpr double rounding = 1e-18;  // of ε
  const Vector variance = 1 / (rstd * rstd) - eps;
  return variance.apply([](double v) { return v > rounding ? v : 0; });
}

// The steps from the numbers x of a vector to x̂. Its groups, if there are several, are equal parts of it.
Steps steps_to_x_hat(const NormRow& row, const Numbers& numbers) {
  const Vector& x = numbers.values;
  const auto [x_hat, mean, rstd] = normalise(row, numbers);
  const auto of_each = [&](const Vector& statistic) {
    Vector each(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) each[i] = statistic[i * statistic.size() / x.size()];
    return each;
  };
  switch (row.kind) {
    case NormKind::layernorm:
    case NormKind::batchnorm:
    case NormKind::groupnorm:
    case NormKind::instancenorm: {
      const Vector deviations = x - of_each(mean), variance = variance_of(rstd);
      return {{"μ", "mean: Σx/n", mean},
              {"x − μ", "", deviations},
              {"(x − μ)²", "", deviations * deviations},
              {"σ²", "variance: Σ(x − μ)²/n, biased", variance},
              {"√(σ² + ε)", "ε = 1e-05 inside the root", 1 / rstd},
              {"σ + ε", "if norm_eps_outside is true", std::sqrt(variance) + eps},
              {"x̂", "(x − μ)/√(σ² + ε)", x_hat}};
    }
    case NormKind::rmsnorm:
      return {{"x²", "", x * x},
              {"mean of x²", "", variance_of(rstd)},
              {"rms", "√(mean of x² + ε), ε = 1e-05", 1 / rstd},
              {"x̂", "x/rms", x_hat}};
    case NormKind::dyt:
    case NormKind::derf:
      return {{"αx", "α starts at 0.5", alpha * x},
              {"x̂", row.has_shift ? "erf(αx + s), s starts at 0" : "tanh(αx)", x_hat}};
    case NormKind::none:
      return {{"x̂", "x", x_hat}};
    default:
      refuse("explain", "the arithmetic of ", row.name, " is not known here; its formula is ", row.formula);
  }
}

// The steps to y = γ ⊙ x̂ + β.
Steps steps_of(const NormRow& row, const Numbers& x, const Affine& affine) {
  const auto& [gain, bias] = affine;
  for (const Vector& given : {gain, bias})
    if (given.size() != 1 && std::ssize(given) != x.cols)
      refuse("explain", "--gain, --bias: got ", given.size(), " numbers; expected 1 or ", x.cols);
  Steps steps = steps_to_x_hat(row, x);
  Vector y = steps.back().values;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = gain[i % gain.size()] * y[i] + bias[i % bias.size()];
  if (row.has_gain) steps.push_back({"γ", "is called weight in PyTorch", gain});
  if (row.has_bias) steps.push_back({"β", "is called bias", bias});
  steps.push_back({"y", text(row.has_gain ? "γ ⊙ x̂" : "x̂", row.has_bias ? " + β" : ""), y});
  return steps;
}

// Scalings that are often confused with norms; nan if all numbers are equal.
Steps other_scalings(const Vector& x) {
  const auto n = static_cast<double>(x.size());
  const Vector deviations = x - x.sum() / n;
  const double s = std::sqrt(Vector(deviations * deviations).sum() / (n - 1));
  return {{"standardised", "(x − μ)/s, s² over n − 1", deviations / s},
          {"min-max", "(x − min)/(max − min)", (x - x.min()) / (x.max() - x.min())}};
}

// A single number with seven digits; several with four decimals each, or with four digits where a number is
// too small or too large for that.
std::string shown(const Vector& numbers) {
  if (numbers.size() == 1) return significant_text(numbers[0], 7);
  std::vector<std::string> cells;
  for (const double v : numbers) {
    const bool is_zero = std::abs(v) < 1e-12, is_plain = std::abs(v) >= 1e-3 && std::abs(v) < 1e6;
    cells.push_back(is_zero || is_plain ? fixed(is_zero ? 0 : v, 4) : significant_text(v, 4));
  }
  return join(cells, "  ");
}

void print(const Steps& steps) {
  for (const auto& [name, formula, values] : steps)
    std::cout << "  " << aligned_left(name, 14) << aligned_left(formula, 30) << "= " << shown(values) << '\n';
}

void print(const Numbers& x) {
  for (Index r = 0; r < x.rows; ++r)
    std::cout << "    " << shown(x.values[std::slice(r * x.cols, x.cols, 1)]) << '\n';
}

// Prints every step for a vector, the means and y for a matrix.
void explain_norm(const NormRow& row, const Numbers& x, const Affine& affine) {
  const Steps steps = steps_of(row, x, affine);
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << '\n';
  if (row.non_causal()) std::cout << "  leaks in a decoder: a token's output depends on later tokens\n";
  if (x.rows == 1 || x.cols == 1) {
    print({{"x", "", x.values}});
    print(steps);
  } else {
    if (steps[0].name == "μ") std::cout << "  μ = " << shown(steps[0].values) << '\n';
    print({x.rows, x.cols, steps.back().values});
  }
}

// Norms of one formula, which differ in the numbers that share a mean and a variance.
void explain_axes(const Numbers& x, const Affine& affine) {
  std::cout << "tokens down, features across:\n";
  print(x);
  for (const NormKind kind :
       {NormKind::layernorm, NormKind::groupnorm, NormKind::batchnorm, NormKind::instancenorm}) {
    std::cout << '\n';
    explain_norm(norm_row(kind), x, affine);
  }
}

void list_all() {
  const auto list = [](const auto& table) {
    for (const auto& row : table) std::cout << "  " << aligned_left(row.name, 14) << row.formula << '\n';
  };
  std::cout << "norms (--norm NAME works one out, with --vector 1,2,3,4 if you like)\n";
  list(norm_table());
  std::cout << "\nplacements (--placement NAME draws one; F is attention, then the FFN)\n";
  list(placement_table());
  list(patterns());
  std::cout << "\n`normscope explain CONFIG` prints a config's blocks; configs/course/NORMS.md has a lesson\n";
}

// "1,2;3,4": semicolons separate tokens, commas features.
Numbers numbers_of(const CommandLine& line, const std::string& option, const char* otherwise) {
  const std::string list = line.text_of(option).value_or(otherwise);
  constexpr double max_number = 1e150;  // larger ones overflow when they are squared
  const std::vector<std::string> rows = split(list, ';');
  const Index cols = std::ssize(split(rows[0]));
  std::vector<double> values;
  bool is_valid = rows.size() == 1 || option == "matrix";
  for (const std::string& row : rows) {
    const std::vector<std::string> words = split(row);
    is_valid = is_valid && std::ssize(words) == cols;
    for (const std::string& word : words) {
      const std::optional<double> value = parse_number<double>(word);
      is_valid = is_valid && value && std::abs(*value) <= max_number;
      values.push_back(value.value_or(0));
    }
  }
  if (!is_valid)
    refuse("explain", "--", option, ": got '", list, "'; expected numbers up to ", max_number,
           option == "matrix" ? ", rows of one length, such as '1,2;3,4'" : ", such as 1,2,3,4");
  return {std::ssize(rows), cols, Vector(values.data(), values.size())};
}

template <class T>
T named(const std::string& option, const std::string& name, const ValueType<T>& type) {
  if (const std::optional<T> value = type.read(name)) return *value;
  refuse("explain", "--", option, ": ", type_error(name, join(type.names, " | "), type.names));
}

void explain_placement_or_pattern(const std::string& name) {
  if (const Pattern* pattern = find_pattern(name))
    std::cout << pattern->name << ": " << pattern->formula << "\n  " << pattern->source
              << "\n\n  final norm before the head: yes\n";
  else
    explain_placement(*named("placement", name, placements())[0].attn);
}

Exit run(const CommandLine& line) {
  const bool has_config = !line.positionals().empty();
  if (line.has("set") && !has_config) refuse("explain", "--set needs a CONFIG to change");
  if (line.has("norm") && has_config)
    refuse("explain", "--norm has the default eps, groups and alpha, not CONFIG's; give one of the two");
  if (line.has("matrix") && line.has("vector")) refuse("explain", "give --matrix or --vector, not both");
  const NormRow& norm =
      norm_row(named("norm", line.text_of("norm").value_or("layernorm"), one_of<NormKind>()));
  if (line.has("gain") && !norm.has_gain) refuse("explain", "--gain: ", norm.name, " has none");
  if (line.has("bias") && !norm.has_bias) refuse("explain", "--bias: ", norm.name, " has none");
  const Affine affine = {numbers_of(line, "gain", "1").values, numbers_of(line, "bias", "0").values};
  Numbers x = line.has("matrix") ? numbers_of(line, "matrix", "") : numbers_of(line, "vector", "1,2,3,4");
  if (line.has("matrix") && !line.has("norm")) {
    explain_axes(x, affine);
  } else if (line.has("matrix")) {
    explain_norm(norm, x, affine);
  } else if (line.has("norm") || line.has("vector") || line.has("gain") || line.has("bias")) {
    if (norm.non_causal()) x = {x.cols, 1, x.values};  // one feature of several tokens
    explain_norm(norm, x, affine);
    std::cout << "\n  Not norms of this kind: no ε, no learned γ and β\n";
    print(other_scalings(x.values));
  } else if (!line.has("placement") && !has_config) {
    list_all();
  }
  if (const auto name = line.text_of("placement")) explain_placement_or_pattern(*name);
  if (has_config)
    explain_config(load_config(line.positionals()[0], line.all_of("set"), {.need_data = false}).config);
  return Exit::ok;
}

}  // namespace

const Command explain_command = {
    .name = "explain",
    .arguments = "[CONFIG]",
    .purpose = "show a norm's arithmetic, a placement's equations, a config's blocks",
    .details = "Without arguments, it lists all norms and placements.",
    .options = {{"norm", "NAME", "a norm, with its numbers worked out"},
                {"vector", "LIST", "the numbers to normalise (default: 1,2,3,4)"},
                {"matrix", "ROWS",
                 "a row for each token, \"1,2;3,4\", under the norms over each axis, or under --norm"},
                {"gain", "LIST", "γ of each feature; one number stands for all (default: 1)"},
                {"bias", "LIST", "β of each feature; one number stands for all (default: 0)"},
                {"placement", "NAME", "a placement and its equations"},
                set_option},
    .run = run,
    .computes = false};

}  // namespace normscope
