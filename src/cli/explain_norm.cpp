// A norm's arithmetic with its numbers, step by step; the engine's own result beside it.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <numeric>

#include "cli/explain.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/text.h"
#include "io/utf8.h"
#include "model/running_statistics.h"
#include "model/transformer.h"

namespace normscope {
namespace {

using Vector = std::vector<double>;

constexpr double max_number = 1e150;  // larger ones overflow when they are squared

// Four decimals, unless that leaves fewer than two digits.
std::string shown(const Vector& values) {
  std::string out;
  for (const double v : values) {
    const bool small = std::abs(v) < 1e-3 && std::abs(v) > 1e-12;
    out += (out.empty() ? "" : "  ") + (small ? shown_number(v) : fixed(v + 0.0, 4));
  }
  return out;
}

void print_step(const std::string& name, const std::string& formula, const std::string& value) {
  std::cout << "  " << aligned_left(name, 14) << aligned_left(formula, 44) << "= " << value << '\n';
}

Vector map(const Vector& x, auto f) {
  Vector y(x.size());
  std::ranges::transform(x, y.begin(), f);
  return y;
}

double mean(const Vector& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}
double mean_square(const Vector& x) {
  return mean(map(x, [](double v) { return v * v; }));
}
double variance(const Vector& x) {
  const double mu = mean(x);
  return mean_square(map(x, [=](double v) { return v - mu; }));
}
double unbiased(const Vector& x) {
  return variance(x) * static_cast<double>(x.size()) / static_cast<double>(x.size() - 1);
}

ModelConfig config_of(NormKind kind, Index features) {
  ModelConfig config;
  config.norm = kind;
  config.norm_groups = features % 2 == 0 ? 2 : 1;
  return config;
}

// The engine's norm.
Numbers by_engine(const NormRow& row, Numbers x, const Affine& affine = {}) {
  Tape<double> tape;
  tape.reset(false);
  const auto constant = [&](const Vector& of) {
    return Tape<double>::constant(of.data(), 1, std::ssize(of));
  };
  const Vector alpha = {0.5}, shift = {0}, gain = affine.gain, bias = affine.bias;
  NormVars<double> vars;
  if (row.has_alpha) vars.alpha = constant(alpha);
  if (row.has_shift) vars.shift = constant(shift);
  if (!gain.empty()) vars.weight = constant(gain);
  if (!bias.empty()) vars.bias = constant(bias);
  const Pass pass{.tokens = {}, .targets = {}, .context = x.context};
  const Var<double> in = Tape<double>::constant(x.values.data(), x.rows, x.cols);
  const Var<double> y = apply_norm(tape, config_of(row.kind, x.cols), vars, pass, in);
  return {x.rows, x.cols, x.context, {y.data, y.data + x.values.size()}};
}

// The numbers of x that the norm normalises together.
std::vector<Vector> groups_of(const NormRow& row, const Numbers& x) {
  const Index tokens = row.over == NormOver::batch ? x.rows : row.over == NormOver::sequence ? x.context : 1;
  const Index features = row.non_causal()               ? 1
                         : row.over == NormOver::groups ? x.cols / config_of(row.kind, x.cols).norm_groups
                                                        : x.cols;
  std::vector<Vector> groups;
  for (Index r = 0; r < x.rows; r += tokens) {
    for (Index c = 0; c < x.cols; c += features) {
      Vector& group = groups.emplace_back();
      for (Index i = r; i < r + tokens; ++i)
        for (Index j = c; j < c + features; ++j) group.push_back(x.values[i * x.cols + j]);
    }
  }
  return groups;
}

const char* over_words(NormOver over) {
  switch (over) {
    case NormOver::features:
      return "all features of a token";
    case NormOver::groups:
      return "a group of a token's features";
    case NormOver::batch:
      return "one feature, all tokens of the batch";
    case NormOver::sequence:
      return "one feature, all tokens of a sequence";
    case NormOver::nothing:
      return "each number by itself";
  }
  return "";
}

// Gains and biases for every feature. Usage Error: the norm has none, or their number is wrong.
Affine affine_for(const NormRow& row, Affine affine, Index features) {
  const auto spread = [&](const char* option, Vector& given, bool has) {
    if (given.empty()) return;
    if (!has) refuse("explain", option, ": ", row.name, " has none");
    if (given.size() == 1) given.resize(features, given[0]);
    if (std::ssize(given) != features)
      refuse("explain", option, ": got ", given.size(),
             " numbers; expected 1, or one per feature: ", features);
  };
  spread("--gain", affine.gain, row.has_gain);
  spread("--bias", affine.bias, row.has_bias);
  return affine;
}

// Prints the steps from the numbers of one group to x̂, which they return.
Vector normalise(const NormRow& row, const Vector& x) {
  constexpr int fine = 7;  // digits that tell ε inside the root from ε outside
  const double eps = ModelConfig().norm_eps;
  if (row.has_alpha) {
    const bool is_erf = row.has_shift;
    const Vector scaled = map(x, [](double v) { return 0.5 * v; });
    const Vector z = map(scaled, [=](double v) { return is_erf ? std::erf(v) : std::tanh(v); });
    print_step(is_erf ? "αx + s" : "αx", is_erf ? "α = 0.5 and s = 0 at the start" : "α = 0.5 at the start",
               shown(scaled));
    print_step("x̂", is_erf ? "erf(αx + s)" : "tanh(αx)", shown(z));
    return z;
  }
  if (!row.has_statistics()) return x;
  const double mu = row.centred ? mean(x) : 0;
  const Vector centred = map(x, [=](double v) { return v - mu; });
  const double square = mean_square(centred), root = std::sqrt(square + eps);
  if (row.centred) {
    print_step("μ", text("mean of x over ", over_words(row.over)), shown_number(mu));
    print_step("x − μ", "", shown(centred));
  }
  print_step(row.centred ? "(x − μ)²" : "x²", "", shown(map(centred, [](double v) { return v * v; })));
  print_step(row.centred ? "σ²" : "mean of x²", row.centred ? "mean of (x − μ)², biased: divided by n" : "",
             shown_number(square));
  print_step(row.centred ? "√(σ² + ε)" : "rms", "ε = 1e-05 inside the root", shown_number(root, fine));
  print_step(row.centred ? "σ + ε" : "rms + ε", "ε outside: norm_eps_outside, not used here",
             shown_number(std::sqrt(square) + eps, fine));
  const Vector z = map(centred, [=](double v) { return v / root; });
  print_step("x̂", row.centred ? "(x − μ)/√(σ² + ε)" : "x/rms", shown(z));
  return z;
}

// Whether normalised numbers, of size 1, are the same; false for NaN.
bool agree(const Vector& a, const Vector& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return std::abs(x - y) <= 1e-9; });
}

}  // namespace

std::vector<double> parse_numbers(const std::string& option, const std::string& list) {
  constexpr std::size_t max_count = 65536;
  Vector values;
  for (const std::string& part : split(list)) {
    char* end = nullptr;
    const double value = std::strtod(part.c_str(), &end);
    if (part.empty() || *end != '\0' || !(std::abs(value) <= max_number))
      refuse("explain", option, ": got '", escape_controls(part), "'; expected numbers up to ", max_number,
             " with commas, such as 1,2,3,4");
    values.push_back(value);
  }
  if (values.size() > max_count)
    refuse("explain", option, ": got ", values.size(), " numbers; expected 1 to ", max_count);
  return values;
}

std::string shown_number(double value, int digits) {
  return text(std::setprecision(digits), std::abs(value) < 1e-12 ? 0.0 : value);
}

void print_numbers(const Numbers& x) {
  for (Index r = 0; r < x.rows; ++r)
    std::cout << (r > 0 && r % x.context == 0 ? "\n    " : "    ")
              << shown({x.values.begin() + r * x.cols, x.values.begin() + (r + 1) * x.cols}) << '\n';
}

void explain_scaling(const Vector& x) {
  const double mu = mean(x), least = *std::ranges::min_element(x), most = *std::ranges::max_element(x);
  std::cout << "\n  Not norms of this kind: no ε, no learned γ and β\n";
  if (!(most > least)) {
    std::cout << "  standardisation and min-max scaling divide by 0 here: all numbers are equal\n";
    return;
  }
  const double s = std::sqrt(unbiased(x));
  print_step("standardised", "(x − μ)/s, s² divided by n − 1",
             shown(map(x, [=](double v) { return (v - mu) / s; })));
  print_step("min-max", "(x − min)/(max − min)",
             shown(map(x, [=](double v) { return (v - least) / (most - least); })));
}

void explain_running_statistics(const Vector& x) {
  double running_mean = 0, running_variance = 1;
  for (const Vector& batch :
       {x, map(x, [](double v) { return v + 1; }), map(x, [](double v) { return 2 * v; })}) {
    const auto move = [](const char* name, double& old, double now) {
      const double moved = (1 - running_momentum) * old + running_momentum * now;
      print_step(name, text("0.9·", shown_number(old), " + 0.1·", shown_number(now)), shown_number(moved));
      old = moved;
    };
    move("running mean", running_mean, mean(batch));
    move("running var", running_variance, unbiased(batch));
  }
}

void explain_norm(const NormRow& row, const Vector& x, const Affine& given) {
  const Index n = std::ssize(x);
  const Numbers in = row.non_causal() ? Numbers{n, 1, n, x} : Numbers{1, n, 1, x};
  const Affine affine = affine_for(row, given, in.cols);
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n";
  print_step("x", "", shown(x));
  const std::vector<Vector> groups = groups_of(row, in), by_the_engine = groups_of(row, by_engine(row, in));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups.size() > 1) print_step("group", text(g + 1, " of ", groups.size()), shown(groups[g]));
    if (!agree(normalise(row, groups[g]), by_the_engine[g]))
      refuse("explain", "the arithmetic of ", row.name, " is not known here; its formula is ", row.formula);
  }
  const std::string gain = affine.gain.empty() ? "1" : shown(affine.gain),
                    bias = affine.bias.empty() ? "0" : shown(affine.bias);
  const std::string words = !row.has_gain   ? ""
                            : !row.has_bias ? "γ ⊙ x̂, γ = " + gain
                                            : "γ ⊙ x̂ + β, γ = " + gain + ", β = " + bias;
  print_step("y", words, shown(by_engine(row, in, affine).values));
  if (row.has_gain)
    std::cout << "  γ is called weight in PyTorch" << (row.has_bias ? ", β bias" : "") << '\n';
  if (row.non_causal())
    std::cout << "  in a causal model it leaks: a token's output depends on later tokens\n";
}

void explain_axes(const NormRow& row, const Numbers& x, const Affine& given) {
  std::cout << row.name << ", over " << over_words(row.over) << ":\n";
  print_numbers(by_engine(row, x, affine_for(row, given, x.cols)));
}

}  // namespace normscope
