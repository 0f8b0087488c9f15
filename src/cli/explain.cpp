// normscope explain: a norm's arithmetic with its numbers, a placement's equations, a config's blocks.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <sstream>
#include <utility>

#include "cli/commands.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "config/names.h"
#include "core/error.h"
#include "core/text.h"
#include "io/utf8.h"
#include "model/apply_norm.h"
#include "model/parameters.h"

namespace normscope {
namespace {

using Vector = std::vector<double>;

constexpr Index vocabulary_for_counts = 65;  // where the text is not at hand; tinyshakespeare has 65

// Four significant digits. What is nothing beside `scale` is a rounding error of 0.
std::string shown_number(double value, double scale = 1e-300) {
  std::ostringstream out;
  out.precision(4);
  out << (std::abs(value) <= 1e-12 * scale ? 0.0 : value);
  return out.str();
}

// Four decimals in a column, unless that leaves fewer than two digits of a number.
std::string shown(const Vector& values) {
  double scale = 0;
  for (const double v : values) scale = std::max(scale, std::abs(v));
  std::string out;
  for (const double v : values) {
    const bool small = std::abs(v) < 1e-3 && std::abs(v) > 1e-12 * scale;
    out += (out.empty() ? "" : "  ") + (small ? shown_number(v) : fixed(std::abs(v) < 1e-3 ? 0.0 : v, 4));
  }
  return out;
}

void print_step(const std::string& what, const std::string& formula, const std::string& value) {
  std::cout << "  " << aligned_left(what, 13) << ' ' << aligned_left(formula, 33) << " = " << value << '\n';
}

Vector map(const Vector& x, auto f) {
  Vector y;
  for (const double v : x) y.push_back(f(v));
  return y;
}

double l2(const Vector& x) { return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0)); }

double mean(const Vector& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

// The program's own norm of one token with these features (gains 1, biases 0): what the steps must arrive at.
Vector by_engine(const ModelConfig& config, Vector x) {
  const auto n = static_cast<Index>(x.size());
  Tape<double> tape;
  tape.reset(false);
  double alpha = 0.5, shift = 0;
  NormVars<double> vars;
  if (norm_row(config.norm).has_alpha) vars.alpha = Tape<double>::constant(&alpha, 1, 1);
  if (norm_row(config.norm).has_shift) vars.shift = Tape<double>::constant(&shift, 1, 1);
  // Norms over tokens see the vector as one feature of n tokens.
  const bool over_tokens = norm_row(config.norm).non_causal();
  const Var<double> in = Tape<double>::constant(x.data(), over_tokens ? n : 1, over_tokens ? 1 : n);
  const Pass pass{.tokens = {}, .targets = {}, .context = n};
  const Var<double> y = apply_norm(tape, config, vars, pass, in);
  return {y.value, y.value + n};
}

struct Step {
  std::string what, formula;
  Vector value;
  double scale = 0;  // of the numbers that it is the sum of, where one number is left
};

// How a norm's row arrives at z of the numbers that it normalises together.
std::vector<Step> steps_of(const NormRow& row, const Vector& x, double eps) {
  if (row.has_alpha) {
    const bool shifted = row.has_shift;
    return {{"scaled", shifted ? "αx + s, α = 0.5, s = 0" : "αx, α = 0.5",
             map(x, [](double v) { return 0.5 * v; })},
            {"squashed", shifted ? "z = erf(αx + s)" : "z = tanh(αx)",
             map(x, [&](double v) { return shifted ? std::erf(0.5 * v) : std::tanh(0.5 * v); })}};
  }
  if (!row.has_statistics()) return {};
  const double mu = row.centred ? mean(x) : 0;
  const double square = mean(map(x, [&](double v) { return (v - mu) * (v - mu); })),
               root = std::sqrt(square + eps);
  const Vector z = map(x, [&](double v) { return (v - mu) / root; });
  if (!row.centred) {
    return {{"mean square", "mean of x²", {square}},
            {"rms", "√(mean of x² + ε)", {root}},
            {"normalised", "z = x / rms", z}};
  }
  const char* over = row.over == NormOver::features ? "the features"
                     : row.over == NormOver::groups ? "the group"
                     : row.over == NormOver::batch  ? "all tokens of the batch"
                                                    : "the tokens of a sequence";
  return {{"mean", std::string("μ = mean of x over ") + over, {mu}, l2(x)},
          {"variance", "σ² = mean of (x − μ)²", {square}},
          {"deviation", "σ = √σ²", {std::sqrt(square)}},
          {"normalised", "z = (x − μ)/√(σ² + ε)", z}};
}

// The steps, but for a last one that does not arrive at y: then the norm's own formula says what follows.
void print_steps(const std::vector<Step>& steps, const Vector& y) {
  for (const Step& step : steps) {
    double off = 0;
    for (std::size_t i = 0; &step == &steps.back() && i < y.size(); ++i)
      off = std::max(off, std::abs(step.value[i] - y[i]));
    if (off > 1e-9) continue;
    const bool one = step.value.size() == 1 && &step != &steps.back();
    print_step(step.what, step.formula, one ? shown_number(step.value[0], step.scale) : shown(step.value));
  }
}

void explain_norm(NormKind kind, const Vector& x) {
  const NormRow& row = norm_row(kind);
  ModelConfig config;
  config.norm = kind;
  config.norm_groups = x.size() % 2 == 0 ? 2 : 1;
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n  x = " << shown(x)
            << ", ε = " << shown_number(config.norm_eps) << "\n\n";
  const Vector y = by_engine(config, x);
  const auto n = static_cast<std::ptrdiff_t>(x.size());
  const std::ptrdiff_t groups = row.over == NormOver::groups ? config.norm_groups : 1, width = n / groups;
  for (std::ptrdiff_t group = 0; group < groups; ++group) {
    const auto part = [&](const Vector& all) {
      return Vector(all.begin() + group * width, all.begin() + (group + 1) * width);
    };
    if (row.over == NormOver::groups)
      std::cout << "  group " << group + 1 << " of " << groups << ": " << shown(part(x)) << '\n';
    print_steps(steps_of(row, part(x), config.norm_eps), part(y));
  }
  std::cout << "\n  y = " << shown(y)
            << (row.has_bias   ? "   (gain 1, bias 0)"
                : row.has_gain ? "   (gain 1)"
                               : "")
            << "\n";
  if (row.has_running)
    std::cout << "  in evaluation: the running mean and variance, new = 0.9 old + 0.1 batch\n";
  if (row.non_causal())
    std::cout << "  in a causal model it leaks: a token's output depends on later tokens\n";

  const double mu = mean(x), squares = std::accumulate(x.begin(), x.end(), 0.0, [&](double sum, double v) {
                               return sum + (v - mu) * (v - mu);
                             });
  const double least = *std::min_element(x.begin(), x.end()), most = *std::max_element(x.begin(), x.end());
  std::cout << "\n  Not the same, for comparison:\n";
  if (n > 1 && most > least) {
    const double s = std::sqrt(squares / static_cast<double>(n - 1));
    print_step("standardised", "(x − μ)/s, s² over n − 1",
               shown(map(x, [&](double v) { return (v - mu) / s; })));
    print_step("min-max", "(x − min)/(max − min)",
               shown(map(x, [&](double v) { return (v - least) / (most - least); })));
  } else {
    std::cout << "  standardisation and min-max scaling divide by 0 here: all numbers are equal\n";
  }
}

// "alpha = 2.2134, init gain 0.3195": what of a row depends on L.
std::string constants_of(const Placement& row, Index n_layer) {
  std::string out;
  if (row.alpha.of(n_layer) != 1) out += "α = " + fixed(row.alpha.of(n_layer), 4);
  if (row.init_gain.of(n_layer) != 1)
    out += std::string(out.empty() ? "" : ", ") +
           (row.gain_everywhere ? "init of every matrix times " : "init of v, attn.out, ffn times ") +
           fixed(row.init_gain.of(n_layer), 4);
  return out;
}

// "/√l"; "·(2l)^0.5".
std::string power_of(const Power& power, const std::string& n) {
  if (power.base == 1 && power.exponent == -0.5) return "/√" + n;
  const std::string base = power.base == 1 ? n : "(" + shown_number(power.base) + n + ")";
  return "·" + base + "^" + shown_number(power.exponent);
}

// A block's two lines, with the names of its norms; as a config has them, that may have no norms or
// residuals.
void print_equations(const BlockRows& rows, bool norms = true, bool residual = true) {
  const auto sublayer = [&](const Placement& row, const std::string& f, const std::string& name) {
    std::string next = name + "_norm";
    const auto norm = [&](bool present, const std::string& x) {
      return norms && present ? std::exchange(next, name + "_post_norm") + "(" + x + ")" : x;
    };
    std::string in = norm(row.norm_in, "x");
    if (!row.input_scale.is_one()) in += power_of(row.input_scale, "l");
    const std::string branch = norm(row.norm_branch, (row.learned_scale ? "a·" : "") + f + "(" + in + ")");
    std::string x = !residual ? "" : row.alpha.is_one() ? "x + " : "α·x + ";
    if (residual && row.block_skip && name == "ffn") x += "(the block's input) + ";
    std::cout << "    x = " << norm(row.norm_out, x + branch) << '\n';
  };
  sublayer(*rows.attn, "attention", "attn");
  sublayer(*rows.ffn, "ffn", "ffn");
}

void explain_placement(const Placement& row) {
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n";
  const auto rows = [](const BlockPlacement& block) {
    return BlockRows{&placement_row(block.attn), &placement_row(block.ffn)};
  };
  if (row.pattern != nullptr && row.pattern->first_blocks != FirstBlocks::none) {
    std::cout << (row.pattern->first_blocks == FirstBlocks::one ? "  block 1:\n"
                                                                : "  blocks 1 to ⌈0.25·L⌉:\n");
    print_equations(rows(row.pattern->first));
    std::cout << "  the rest:\n";
  } else {
    std::cout << "  block l, with the names of its norms:\n";
  }
  print_equations(row.pattern != nullptr ? rows(row.pattern->rest) : BlockRows{&row, &row});
  if (row.qkv_norm) std::cout << "  queries, keys and values: RMS norm of each head\n";
  std::cout << "\n  embedding norm: " << (row.embed_norm ? "yes" : "no")
            << "; final norm before the head: " << (row.final_norm ? "yes" : "no") << '\n';
  for (const Index n_layer : {12, 24}) {
    const std::string constants = constants_of(row, n_layer);
    if (!constants.empty()) std::cout << "  L = " << n_layer << ": " << constants << '\n';
  }
  if (row.learned_scale) std::cout << "  a: one learned number a sublayer, 0 at the start\n";
}

// How many characters a config's text has, if it can be read now.
std::optional<Index> vocabulary_size(const RunConfig& config) {
  try {
    return corpus_of(config).vocab.size();
  } catch (const Error&) {
    return std::nullopt;
  }
}

void explain_config(const RunConfig& config) {
  const ModelConfig& m = config.model;
  const std::optional<Index> vocabulary = vocabulary_size(config);
  const ParameterLayout layout(m, vocabulary.value_or(vocabulary_for_counts));
  std::cout << config.name << ": " << m.n_layer << " blocks, width " << m.d_model << ", " << m.n_head
            << " heads of " << m.d_model / m.n_head << ", FFN " << m.d_ff << " (" << name_of(m.activation)
            << "), " << name_of(m.norm) << ", context " << m.context << "\n\n";
  std::cout << "  x = token"
            << (m.position == Position::learned || m.position == Position::sinusoidal ? " + position" : "");
  const std::vector<BlockRows> rows = placements_of(m);
  std::cout << (rows[0].attn->embed_norm ? ", then embed_norm" : "") << '\n';
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t end = first;
    while (end < rows.size() && rows[end] == rows[first]) ++end;
    std::cout << "  blocks " << first + 1 << " to " << end << " ("
              << placement_name({rows[first].attn->kind, rows[first].ffn->kind}) << "):\n";
    print_equations(rows[first], m.norm != NormKind::none, m.residual);
    const std::string constants = constants_of(*rows[first].attn, m.n_layer);
    if (!constants.empty()) std::cout << "    " << constants << '\n';
    first = end;
  }
  std::cout << "  logits = head(" << (m.final_norm ? "final_norm(x)" : "x") << ")"
            << (m.tie_embeddings ? ", the head is the token embedding" : "") << "\n\n  parameters ("
            << (vocabulary ? text("its text has ", *vocabulary, " characters")
                           : text("its text cannot be read; with ", vocabulary_for_counts, " characters"))
            << ")\n";
  const auto print_layer = [&](const std::string& label, int layer) {
    Index total = 0, norms = 0;
    for (const Parameter& p : layout.list()) {
      if (p.layer != layer || !p.trainable) continue;
      total += p.size;
      if (p.is_norm()) norms += p.size;
    }
    std::cout << "    " << aligned_left(label, 21) << ' ' << grouped(total)
              << (norms > 0 ? ", of them norms " + grouped(norms) : "") << '\n';
  };
  print_layer("embeddings", 0);
  print_layer(text("block 1 of ", m.n_layer), 1);
  print_layer("head and final norm", static_cast<int>(m.n_layer) + 1);
  std::cout << "    in all                " << grouped(layout.count()) << '\n';
}

void list_all() {
  const auto list = [](const char* title, const auto& table) {
    std::cout << title << '\n';
    for (const auto& row : table)
      std::cout << "  " << std::left << std::setw(14) << row.name << row.formula << '\n';
  };
  list("norms (--norm NAME shows the arithmetic, of --vector 1,2,3,4 if you like)", norm_table());
  list("\nplacements (--placement NAME shows the equations; F is attention, then the FFN)",
       placement_table());
  std::cout << "\n`normscope explain CONFIG` shows a config's own blocks.\n";
}

Vector parse_vector(const std::string& list) {
  Vector values;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    char* end = nullptr;
    const double value = std::strtod(part.c_str(), &end);
    if (part.empty() || *end != '\0' || !std::isfinite(value)) {
      refuse("explain", "--vector: got '", escape_controls(part),
             "'; expected numbers with commas, such as 1,2,3,4");
    }
    values.push_back(value);
  }
  if (values.empty() || values.size() > 64)
    refuse("explain", "--vector: got ", values.size(), " numbers; expected 1 to 64");
  return values;
}

template <class Enum>
Enum parse_name(const std::string& option, const std::string& name) {
  std::vector<std::string> known;
  for (const Named<Enum>& row : names_of(Enum{})) {
    if (row.name == name) return row.value;
    known.push_back(row.name);
  }
  const std::string meant = nearest(name, known);
  refuse("explain", "--", option, ": unknown name ", escape_controls(name), "; ",
         meant.empty() ? "`normscope explain` lists all" : "did you mean " + meant + "?");
}

Exit run(const CommandLine& line) {
  if (line.has("set") && line.positionals().empty()) refuse("explain", "--set needs a CONFIG to change");
  const std::optional<std::string> norm = line.text_of("norm"), placement = line.text_of("placement");
  if (line.has("vector") || norm) {
    explain_norm(parse_name<NormKind>("norm", norm.value_or("layernorm")),
                 parse_vector(line.text_of("vector").value_or("1,2,3,4")));
  }
  if (placement) {
    if (norm) std::cout << '\n';
    explain_placement(placement_row(parse_name<PlacementKind>("placement", *placement)));
  }
  if (!line.positionals().empty()) {
    if (norm || placement) std::cout << '\n';
    explain_config(load_config(line.positionals()[0], line.all_of("set"), {.need_data = false}).config);
  } else if (!norm && !placement && !line.has("vector")) {
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
                {"placement", "NAME", "a placement and its equations"},
                set_option},
    .run = run};

}  // namespace normscope
