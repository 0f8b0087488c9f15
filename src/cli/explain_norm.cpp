// A norm's arithmetic with its numbers, step by step.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <numeric>

#include "cli/explain.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/text.h"
#include "model/running_statistics.h"

namespace normscope {
namespace {

Vector map(const Vector& x, auto f) {
  Vector y(x.size());
  std::ranges::transform(x, y.begin(), f);
  return y;
}

double mean(const Vector& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

Vector squares(const Vector& x) {
  return map(x, [](double v) { return v * v; });
}

Vector centred(const Vector& x) {
  return map(x, [mu = mean(x)](double v) { return v - mu; });
}

double unbiased_variance(const Vector& x) {
  const double n = static_cast<double>(x.size());
  return mean(squares(centred(x))) * n / (n - 1);
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

struct Step {
  std::string name, formula, value;
};

// The steps from numbers that share a mean and a variance to their x̂.
Vector normalise(const NormRow& row, const Vector& x, std::vector<Step>& steps) {
  constexpr double eps = 1e-5, alpha = 0.5;  // the defaults of norm_eps and of DyT's and Derf's α
  const auto divided = [&](const Vector& values, double square) {
    return map(values, [root = std::sqrt(square + eps)](double v) { return v / root; });
  };
  switch (row.kind) {
    case NormKind::layernorm:
    case NormKind::batchnorm:
    case NormKind::groupnorm:
    case NormKind::instancenorm: {
      const Vector deviations = centred(x);
      const double variance = mean(squares(deviations));
      const Vector x_hat = divided(deviations, variance);
      steps = {{"μ", "mean of x over " + over_words(row), shown(mean(x))},
               {"x − μ", "", shown(deviations)},
               {"(x − μ)²", "", shown(squares(deviations))},
               {"σ²", "mean of (x − μ)², biased: divided by n", shown(variance)},
               {"√(σ² + ε)", "ε = 1e-05 inside the root", shown(std::sqrt(variance + eps), 7)},
               {"σ + ε", "ε outside: norm_eps_outside, not used here", shown(std::sqrt(variance) + eps, 7)},
               {"x̂", "(x − μ)/√(σ² + ε)", shown(x_hat)}};
      return x_hat;
    }
    case NormKind::rmsnorm: {
      const double square = mean(squares(x));
      const Vector x_hat = divided(x, square);
      steps = {{"x²", "", shown(squares(x))},
               {"mean of x²", "", shown(square)},
               {"rms", "√(mean of x² + ε), ε = 1e-05", shown(std::sqrt(square + eps), 7)},
               {"x̂", "x/rms", shown(x_hat)}};
      return x_hat;
    }
    case NormKind::dyt:
    case NormKind::derf: {
      const bool is_erf = row.kind == NormKind::derf;
      const Vector z = map(x, [](double v) { return alpha * v; });
      const Vector x_hat = map(z, [=](double v) { return is_erf ? std::erf(v) : std::tanh(v); });
      steps = {{"αx", "α = 0.5 at the start", shown(z)},
               {"x̂", is_erf ? "erf(αx + s), s = 0 at the start" : "tanh(αx)", shown(x_hat)}};
      return x_hat;
    }
    case NormKind::none:
      return x;
    default:
      refuse("explain", "the arithmetic of ", row.name, " is not known here; its formula is ", row.formula);
  }
}

// The numbers that share a mean and a variance have equal keys.
std::pair<Index, Index> group_of(const NormRow& row, const Numbers& x, Index token, Index feature) {
  const Index half = x.cols % 2 == 0 ? x.cols / 2 : x.cols;  // norm_groups = 2
  switch (row.over) {
    case NormOver::batch:
      return {0, feature};
    case NormOver::sequence:
      return {token / x.context, feature};
    case NormOver::groups:
      return {token, feature / half};
    default:
      return {token, 0};
  }
}

// y = γ ⊙ x̂ + β of each number, and with `show` the steps to it. Usage Error: the norm has no such parameter,
// or their count is wrong.
Numbers output(const NormRow& row, const Numbers& x, const Affine& affine, bool show = false) {
  std::map<std::pair<Index, Index>, std::vector<Index>> groups;
  for (Index i = 0; i < std::ssize(x.values); ++i)
    groups[group_of(row, x, i / x.cols, i % x.cols)].push_back(i);
  const auto for_features = [&](const char* option, const Vector& given, bool exists, double otherwise) {
    if (given.empty()) return Vector(x.cols, otherwise);
    if (!exists) refuse("explain", option, ": ", row.name, " has none");
    if (given.size() == 1) return Vector(x.cols, given[0]);
    if (std::ssize(given) != x.cols)
      refuse("explain", option, ": got ", given.size(), " numbers; expected 1, or one per feature: ", x.cols);
    return given;
  };
  const Vector gain = for_features("--gain", affine.gain, row.has_gain, 1),
               bias = for_features("--bias", affine.bias, row.has_bias, 0);
  Numbers y = x;
  for (const auto& [key, places] : groups) {
    Vector group;
    for (const Index i : places) group.push_back(x.values[i]);
    std::vector<Step> steps;
    const Vector x_hat = normalise(row, group, steps);
    if (show && groups.size() > 1) print_step("group", "", shown(group));
    for (const Step& step : steps)
      if (show) print_step(step.name, step.formula, step.value);
    for (std::size_t g = 0; g < places.size(); ++g) {
      const Index feature = places[g] % x.cols;
      y.values[places[g]] = gain[feature] * x_hat[g] + bias[feature];
    }
  }
  if (show && row.has_gain) print_step("γ", "is called weight in PyTorch", shown(gain));
  if (show && row.has_bias) print_step("β", "is called bias", shown(bias));
  if (show) print_step("y", row.has_bias ? "γ ⊙ x̂ + β" : row.has_gain ? "γ ⊙ x̂" : "x", shown(y.values));
  return y;
}

}  // namespace

void print_matrix(const Numbers& x) {
  for (Index r = 0; r < x.rows; ++r)
    std::cout << (r > 0 && r % x.context == 0 ? "\n    " : "    ")
              << shown(Vector(x.values.begin() + r * x.cols, x.values.begin() + (r + 1) * x.cols)) << '\n';
}

void explain_norm(const NormRow& row, const Vector& x, const Affine& affine) {
  const Index n = std::ssize(x);
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n";
  print_step("x", "", shown(x));
  output(row, row.non_causal() ? Numbers{n, 1, n, x} : Numbers{1, n, 1, x}, affine, true);
  if (row.non_causal())
    std::cout << "  in a causal model it leaks: a token's output depends on later tokens\n";
}

void explain_scaling(const Vector& x) {
  const double least = std::ranges::min(x), range = std::ranges::max(x) - least;
  const double s = std::sqrt(unbiased_variance(x));
  std::cout << "\n  Not norms of this kind: no ε, no learned γ and β\n";
  print_step("standardised", "(x − μ)/s, s² divided by n − 1",
             shown(map(centred(x), [=](double v) { return v / s; })));
  print_step("min-max", "(x − min)/(max − min)",
             shown(map(x, [=](double v) { return (v - least) / range; })));
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
  print_matrix(output(row, x, affine));
}

}  // namespace normscope
