// A norm's arithmetic with its numbers, step by step.
#include <cmath>
#include <iostream>

#include "cli/explain.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/text.h"
#include "model/parameters.h"

namespace normscope {
namespace {

double mean(const Vector& x) { return x.sum() / static_cast<double>(x.size()); }

double unbiased_variance(const Vector& x) {
  const Vector deviations = x - mean(x);
  return Vector(deviations * deviations).sum() / static_cast<double>(x.size() - 1);
}

std::string shown(double value, int digits = 4) { return significant_text(value, digits); }

// Four decimals, unless that leaves fewer than two digits.
std::string shown(const Vector& values) {
  std::vector<std::string> cells;
  for (const double v : values) {
    const bool is_zero = std::abs(v) < 1e-12, is_small = std::abs(v) < 1e-3;
    cells.push_back(is_small && !is_zero ? shown(v) : fixed(is_zero ? 0 : v, 4));
  }
  return join(cells, "  ");
}

void print_step(const std::string& name, const std::string& formula, const std::string& value) {
  std::cout << "  " << aligned_left(name, 14) << aligned_left(formula, 44) << "= " << value << '\n';
}

std::string over_words(const NormRow& row) {
  constexpr const char* words[] = {"each number by itself", "all features of a token", "a group of features",
                                   "one feature, all tokens of the batch",
                                   "one feature, all tokens of a sequence"};
  return words[static_cast<int>(row.over)];
}

// The numbers of x that share a mean and a variance, group by group.
std::vector<std::slice> groups_of(const NormRow& row, const Numbers& x) {
  const std::size_t cols = x.cols, half = cols % 2 == 0 ? cols / 2 : cols;  // norm_groups = 2
  const std::size_t tokens = row.over == NormOver::batch      ? x.rows
                             : row.over == NormOver::sequence ? x.context
                                                              : 1;
  const std::size_t features = row.non_causal() ? 1 : row.over == NormOver::groups ? half : cols;
  std::vector<std::slice> groups;
  for (std::size_t token = 0; token * cols < x.values.size(); token += tokens) {
    for (std::size_t feature = 0; feature < cols; feature += features)
      groups.emplace_back(token * cols + feature, tokens * features, row.non_causal() ? cols : 1);
  }
  return groups;
}

struct Step {
  std::string name, formula, value;
};

// x̂ of numbers that share a mean and a variance, and the steps to it.
Vector normalised(const NormRow& row, const Vector& x, std::vector<Step>& steps) {
  constexpr double eps = 1e-5, alpha = 0.5;  // the defaults of norm_eps and of DyT's and Derf's α
  switch (row.kind) {
    case NormKind::layernorm:
    case NormKind::batchnorm:
    case NormKind::groupnorm:
    case NormKind::instancenorm: {
      const Vector deviations = x - mean(x), squares = deviations * deviations;
      const double variance = mean(squares), root = std::sqrt(variance + eps);
      const Vector x_hat = deviations / root;
      steps = {{"μ", "mean of x over " + over_words(row), shown(mean(x))},
               {"x − μ", "", shown(deviations)},
               {"(x − μ)²", "", shown(squares)},
               {"σ²", "mean of (x − μ)², biased: divided by n", shown(variance)},
               {"√(σ² + ε)", "ε = 1e-05 inside the root", shown(root, 7)},
               {"σ + ε", "ε outside: norm_eps_outside, not used here", shown(std::sqrt(variance) + eps, 7)},
               {"x̂", "(x − μ)/√(σ² + ε)", shown(x_hat)}};
      return x_hat;
    }
    case NormKind::rmsnorm: {
      const Vector squares = x * x;
      const double rms = std::sqrt(mean(squares) + eps);
      const Vector x_hat = x / rms;
      steps = {{"x²", "", shown(squares)},
               {"mean of x²", "", shown(mean(squares))},
               {"rms", "√(mean of x² + ε), ε = 1e-05", shown(rms, 7)},
               {"x̂", "x/rms", shown(x_hat)}};
      return x_hat;
    }
    case NormKind::dyt:
    case NormKind::derf: {
      const bool is_erf = row.kind == NormKind::derf;
      const Vector scaled = alpha * x;
      const Vector x_hat =
          is_erf ? scaled.apply([](double v) { return std::erf(v); }) : Vector(std::tanh(scaled));
      steps = {{"αx", "α = 0.5 at the start", shown(scaled)},
               {"x̂", is_erf ? "erf(αx + s), s = 0 at the start" : "tanh(αx)", shown(x_hat)}};
      return x_hat;
    }
    case NormKind::none:
      return x;
    default:
      refuse("explain", "the arithmetic of ", row.name, " is not known here; its formula is ", row.formula);
  }
}

// `given` for each feature, or `otherwise`.
Vector parameter(const NormRow& row, const char* option, bool exists, const Vector& given,
                 std::size_t features, double otherwise) {
  if (given.size() == 0) return Vector(otherwise, features);
  if (!exists) refuse("explain", option, ": ", row.name, " has none");
  if (given.size() == 1) return Vector(given[0], features);
  if (given.size() != features)
    refuse("explain", option, ": got ", given.size(), " numbers; expected 1, or one per feature: ", features);
  return given;
}

// y = γ ⊙ x̂ + β; prints the steps to it if `show`.
Numbers output(const NormRow& row, const Numbers& x, const Affine& affine, bool show = false) {
  const Vector gain = parameter(row, "--gain", row.has_gain, affine.gain, x.cols, 1),
               bias = parameter(row, "--bias", row.has_bias, affine.bias, x.cols, 0);
  Numbers y = x;
  for (const std::slice& group : groups_of(row, x)) {
    std::vector<Step> steps;
    y.values[group] = normalised(row, x.values[group], steps);
    if (show && row.over == NormOver::groups) print_step("group", "", shown(x.values[group]));
    for (const Step& step : steps)
      if (show) print_step(step.name, step.formula, step.value);
  }
  for (std::size_t i = 0; i < y.values.size(); ++i)
    y.values[i] = gain[i % x.cols] * y.values[i] + bias[i % x.cols];
  if (show && row.has_gain) print_step("γ", "is called weight in PyTorch", shown(gain));
  if (show && row.has_bias) print_step("β", "is called bias", shown(bias));
  if (show) print_step("y", row.has_bias ? "γ ⊙ x̂ + β" : row.has_gain ? "γ ⊙ x̂" : "x", shown(y.values));
  return y;
}

}  // namespace

void print_numbers(const Numbers& x) {
  for (Index r = 0; r < x.rows; ++r)
    std::cout << (r > 0 && r % x.context == 0 ? "\n    " : "    ")
              << shown(x.values[std::slice(r * x.cols, x.cols, 1)]) << '\n';
}

void explain_norm(const NormRow& row, const Vector& x, const Affine& affine) {
  const auto n = static_cast<Index>(x.size());
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n";
  print_step("x", "", shown(x));
  output(row, row.non_causal() ? Numbers{n, 1, n, x} : Numbers{1, n, 1, x}, affine, true);
  if (row.non_causal())
    std::cout << "  in a causal model it leaks: a token's output depends on later tokens\n";
}

void explain_scaling(const Vector& x) {
  std::cout << "\n  Not norms of this kind: no ε, no learned γ and β\n";
  print_step("standardised", "(x − μ)/s, s² divided by n − 1",
             shown((x - mean(x)) / std::sqrt(unbiased_variance(x))));
  print_step("min-max", "(x − min)/(max − min)", shown((x - x.min()) / (x.max() - x.min())));
}

void explain_running_statistics() {
  double running_mean = 0, running_variance = 1;
  const auto move = [](const char* name, double& old, double now) {
    const double moved = (1 - running_momentum) * old + running_momentum * now;
    print_step(name, "0.9·" + shown(old) + " + 0.1·" + shown(now), shown(moved));
    old = moved;
  };
  for (const Vector& batch : {Vector{1, 2, 3, 4}, Vector{2, 3, 4, 5}, Vector{2, 4, 6, 8}}) {
    move("running mean", running_mean, mean(batch));
    move("running var", running_variance, unbiased_variance(batch));
  }
}

void explain_axes(const NormRow& row, const Numbers& x, const Affine& affine) {
  std::cout << '\n' << row.name << ", over " << over_words(row) << ":\n";
  print_numbers(output(row, x, affine));
}

}  // namespace normscope
