// A norm's arithmetic with its numbers, step by step; the engine's own answer beside it.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <numeric>

#include "cli/explain.h"
#include "cli/terminal.h"
#include "model/running_statistics.h"
#include "model/transformer.h"

namespace normscope {

std::string shown_number(double value, double scale, int digits) {
  return text(std::setprecision(digits), std::abs(value) <= 1e-12 * scale ? 0.0 : value);
}

namespace {

using Vector = std::vector<double>;

constexpr std::size_t max_shown = 16;  // numbers of a vector; longer ones are abridged

// Four decimals in a column, unless that leaves fewer than two digits of a number.
std::string shown(const Vector& values) {
  double scale = 0;
  for (const double v : values) scale = std::max(scale, std::abs(v));
  std::string out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values.size() > max_shown && i == max_shown / 2) {
      i = values.size() - 3;
      out += "  …";
    }
    const double v = values[i];
    const bool small = std::abs(v) < 1e-3 && std::abs(v) > 1e-12 * scale;
    out += (out.empty() ? "" : "  ") + (small ? shown_number(v) : fixed(std::abs(v) < 1e-3 ? 0.0 : v, 4));
  }
  return out + (values.size() > max_shown ? text("  (", values.size(), " numbers)") : "");
}

void print_step(const std::string& what, const std::string& formula, const std::string& value) {
  std::cout << "  " << aligned_left(what, 13) << ' ' << aligned_left(formula, 43) << " = " << value << '\n';
}

Vector map(const Vector& x, auto f) {
  Vector y;
  for (const double v : x) y.push_back(f(v));
  return y;
}

double l2(const Vector& x) { return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0)); }
double sum(const Vector& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double mean(const Vector& x) { return sum(x) / static_cast<double>(x.size()); }
double rms(const Vector& x) { return l2(x) / std::sqrt(static_cast<double>(x.size())); }

// The sum of the squared distances from the mean.
double squares(const Vector& x) {
  const double mu = mean(x);
  return sum(map(x, [&](double v) { return (v - mu) * (v - mu); }));
}

double deviation(const Vector& x) { return std::sqrt(squares(x) / static_cast<double>(x.size())); }

ModelConfig config_of(NormKind kind, std::ptrdiff_t features) {
  ModelConfig config;
  config.norm = kind;
  config.norm_groups = features % 2 == 0 ? 2 : 1;
  return config;
}

// The engine's norm, which the steps must give.
Numbers by_engine(NormKind kind, Numbers x, Affine affine = {}) {
  const NormRow& row = norm_row(kind);
  Tape<double> tape;
  tape.reset(false);
  double alpha = 0.5, shift = 0;
  NormVars<double> vars;
  if (row.has_alpha) vars.alpha = Tape<double>::constant(&alpha, 1, 1);
  if (row.has_shift) vars.shift = Tape<double>::constant(&shift, 1, 1);
  if (!affine.gain.empty()) vars.weight = Tape<double>::constant(affine.gain.data(), 1, x.cols);
  if (!affine.bias.empty()) vars.bias = Tape<double>::constant(affine.bias.data(), 1, x.cols);
  const Var<double> in = Tape<double>::constant(x.values.data(), x.rows, x.cols);
  const Pass pass{.tokens = {}, .targets = {}, .context = x.rows};
  const Var<double> y = apply_norm(tape, config_of(kind, x.cols), vars, pass, in);
  return {x.rows, x.cols, {y.data, y.data + x.values.size()}};
}

// The numbers of x that the norm normalises together.
std::vector<Vector> groups_of(const NormRow& row, const Numbers& x) {
  const bool by_column = row.non_causal();
  const Index per_token = row.over == NormOver::groups ? config_of(row.kind, x.cols).norm_groups : 1;
  const Index count = by_column ? x.cols : x.rows * per_token, size = x.rows * x.cols / count;
  std::vector<Vector> groups(count);
  for (Index g = 0; g < count; ++g) {
    for (Index i = 0; i < size; ++i) groups[g].push_back(x.values[by_column ? i * x.cols + g : g * size + i]);
  }
  return groups;
}

// Usage Error unless the norm has a gain and a bias if given, one for each feature.
void require_affine(const NormRow& row, const Affine& affine, std::ptrdiff_t features) {
  const auto check = [&](const char* option, const Vector& given, bool has) {
    if (given.empty()) return;
    if (!has) refuse("explain", option, ": ", row.name, " has none");
    if (std::ssize(given) != features)
      refuse("explain", option, ": got ", given.size(), " numbers; expected ", features,
             ", one a feature (of ", row.name, " here)");
  };
  check("--gain", affine.gain, row.has_gain);
  check("--bias", affine.bias, row.has_bias);
}

struct Step {
  std::string what, formula;
  Vector value;
  double scale = 0;  // of the summands, if the value is one sum; see shown_number()
  int digits = 4;
};

const char* over_words(NormOver over) {
  return over == NormOver::features ? "the features"
         : over == NormOver::groups ? "the group"
         : over == NormOver::batch  ? "all tokens of the batch"
                                    : "the tokens of a sequence";
}

// The steps from the numbers of one group to z.
std::vector<Step> steps_of(const NormRow& row, const Vector& x, double eps) {
  const auto n = static_cast<double>(x.size());
  constexpr int fine = 7;  // digits that tell ε inside the root from ε outside
  if (row.has_alpha) {
    const bool shifted = row.has_shift;
    return {{"scaled", shifted ? "αx + s, α = 0.5, s = 0" : "αx, α = 0.5",
             map(x, [](double v) { return 0.5 * v; })},
            {"squashed", shifted ? "z = erf(αx + s)" : "z = tanh(αx)",
             map(x, [&](double v) { return shifted ? std::erf(0.5 * v) : std::tanh(0.5 * v); })}};
  }
  if (!row.has_statistics()) return {};
  if (!row.centred) {
    const Vector squared = map(x, [](double v) { return v * v; });
    const double square = mean(squared), root = std::sqrt(square + eps);
    return {{"squares", "x²", squared},
            {"sum", "Σx²", {sum(squared)}},
            {"mean square", "mean of x²", {square}},
            {"ε outside", "√(mean of x²) + ε, not used here", {std::sqrt(square) + eps}, 0, fine},
            {"rms", "√(mean of x² + ε)", {root}, 0, fine},
            {"normalised", "z = x / rms", map(x, [&](double v) { return v / root; })}};
  }
  const double mu = mean(x), all = squares(x), square = all / n, root = std::sqrt(square + eps);
  const Vector centred = map(x, [&](double v) { return v - mu; });
  return {{"sum", "Σx", {sum(x)}, l2(x)},
          {"mean", std::string("μ = mean of x over ") + over_words(row.over), {mu}, l2(x)},
          {"centred", "x − μ", centred},
          {"squares", "(x − μ)²", map(centred, [](double v) { return v * v; })},
          {"sum", "Σ(x − μ)²", {all}},
          {"variance", "σ² = mean of (x − μ)², biased", {square}},
          {"unbiased", "Σ(x − μ)²/(n − 1), not used here", {n > 1 ? all / (n - 1) : std::nan("")}},
          {"deviation", "σ = √σ²", {std::sqrt(square)}, 0, fine},
          {"ε inside", "√(σ² + ε)", {root}, 0, fine},
          {"ε outside", "σ + ε, not used here", {std::sqrt(square) + eps}, 0, fine},
          {"normalised", "z = (x − μ)/√(σ² + ε)", map(centred, [&](double v) { return v / root; })}};
}

// Prints the steps, without a last one that does not give z: the norm's formula then says what follows.
void print_steps(const std::vector<Step>& steps, const Vector& z, bool centred) {
  for (const Step& step : steps) {
    double off = 0;
    for (std::size_t i = 0; &step == &steps.back() && i < z.size(); ++i)
      off = std::max(off, std::abs(step.value[i] - z[i]));
    if (off > 1e-9) continue;
    const bool one = step.value.size() == 1 && &step != &steps.back();
    print_step(step.what, step.formula,
               one ? shown_number(step.value[0], step.scale, step.digits) : shown(step.value));
    if (&step != &steps.back() || steps.size() < 3) continue;
    print_step(
        "check", centred ? "mean of z; deviation of z" : "rms of z",
        centred ? shown_number(mean(z), l2(z)) + "; " + shown_number(deviation(z)) : shown_number(rms(z)));
  }
}

void print_running(const Vector& x) {
  std::cout
      << "\n  Running statistics of three batches, x, x + 1 and 2x (variance unbiased, μ = 0 and σ² = 1 at "
         "first):\n";
  double running_mean = 0, running_variance = 1;
  const Vector batches[] = {x, map(x, [](double v) { return v + 1; }),
                            map(x, [](double v) { return 2 * v; })};
  for (const Vector& batch : batches) {
    const double variance = squares(batch) / static_cast<double>(batch.size() - 1);
    const auto step = [](const char* what, double& old, double now) {
      const double moved = (1 - running_momentum) * old + running_momentum * now;
      print_step(what, text("0.9·", shown_number(old), " + 0.1·", shown_number(now)), shown_number(moved));
      old = moved;
    };
    step("mean", running_mean, mean(batch));
    step("variance", running_variance, variance);
  }
  std::cout << "  in evaluation: z = (x − running mean)/√(running variance + ε)\n";
}

}  // namespace

void explain_scaling(const Vector& x) {
  const double mu = mean(x), least = *std::ranges::min_element(x), most = *std::ranges::max_element(x);
  std::cout << "\n  Not the same, for comparison:\n";
  if (!(most > least)) {
    std::cout << "  standardisation and min-max scaling divide by 0 here: all numbers are equal\n";
    return;
  }
  const double s = std::sqrt(squares(x) / static_cast<double>(x.size() - 1));
  print_step("standardised", "(x − μ)/s, s² over n − 1",
             shown(map(x, [&](double v) { return (v - mu) / s; })));
  print_step("min-max", "(x − min)/(max − min)",
             shown(map(x, [&](double v) { return (v - least) / (most - least); })));
}

void explain_norm(NormKind kind, const Vector& x, const Affine& affine) {
  const NormRow& row = norm_row(kind);
  const std::ptrdiff_t n = std::ssize(x);
  const Numbers in = row.non_causal() ? Numbers{n, 1, x} : Numbers{1, n, x};
  require_affine(row, affine, in.cols);
  const double eps = ModelConfig().norm_eps;
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n  x = " << shown(x)
            << (row.has_statistics() ? ", ε = " + shown_number(eps) : "") << "\n\n";
  const std::vector<Vector> groups = groups_of(row, in), z = groups_of(row, by_engine(kind, in));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (row.over == NormOver::groups)
      std::cout << "  group " << g + 1 << " of " << groups.size() << ": " << shown(groups[g]) << '\n';
    print_steps(steps_of(row, groups[g], eps), z[g], row.centred);
  }
  const auto words = [](const char* name, const Vector& given, const char* otherwise) {
    return text(name, ' ', given.empty() ? otherwise : shown(given));
  };
  std::cout << (kind == NormKind::none ? "" : "\n") << "  y = " << shown(by_engine(kind, in, affine).values);
  if (row.has_gain) std::cout << "   (" << words("gain", affine.gain, "1");
  if (row.has_gain && row.has_bias) std::cout << words(", bias", affine.bias, "0");
  std::cout << (row.has_gain ? ")\n" : "\n");
  if (row.has_running && n > 1) print_running(x);
  if (row.non_causal())
    std::cout << "  in a causal model it leaks: a token's output depends on later tokens\n";
}

void explain_axis(NormKind kind, const Numbers& x, const Affine& affine) {
  const NormRow& row = norm_row(kind);
  require_affine(row, affine, x.cols);
  const Vector y = by_engine(kind, x, affine).values;
  std::cout << row.name << ", "
            << (row.has_statistics() ? text("over ", over_words(row.over)) : "each number by itself")
            << ":\n";
  for (auto token = y.begin(); token != y.end(); token += x.cols)
    std::cout << "    " << shown(Vector(token, token + x.cols)) << '\n';
  if (!row.has_statistics()) return;
  std::string first, second;
  for (const Vector& z : groups_of(row, by_engine(kind, x))) {
    first += "  " + shown_number(row.centred ? mean(z) : rms(z), l2(z));
    second += "  " + shown_number(deviation(z));
  }
  const char* each = row.non_causal() ? "column" : row.over == NormOver::groups ? "group of a row" : "row";
  std::cout << "    " << (row.centred ? "mean" : "rms") << " of each " << each
            << " before gain and bias:" << first << '\n';
  if (row.centred) std::cout << "    deviation:" << second << '\n';
}

}  // namespace normscope
