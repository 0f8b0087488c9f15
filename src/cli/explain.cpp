// normscope explain: a norm's arithmetic with its numbers, a placement's equations, a config's blocks.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <sstream>

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
  const auto width = [](const std::string& s) {
    return static_cast<std::size_t>(
        std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  };
  std::cout << "  " << what << std::string(what.size() < 14 ? 14 - what.size() : 1, ' ') << formula
            << std::string(width(formula) < 34 ? 34 - width(formula) : 1, ' ') << "= " << value << '\n';
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
  double alpha = 0.5;
  NormVars<double> vars;
  if (norm_row(config.norm).has_alpha) vars.alpha = Tape<double>::constant(&alpha, 1, 1);
  // Norms over tokens see the vector as one feature of n tokens.
  const bool over_tokens = norm_row(config.norm).non_causal();
  const Var<double> in =
      over_tokens ? Tape<double>::constant(x.data(), n, 1) : Tape<double>::constant(x.data(), 1, n);
  const Var<double> y = apply_norm(tape, config, vars, {n, false}, in);
  return {y.value, y.value + n};
}

void print_mean_and_variance(const Vector& x, const std::string& over, double eps) {
  const double mu = mean(x), variance = mean(map(x, [&](double v) { return (v - mu) * (v - mu); }));
  print_step("mean", "μ = mean of x over " + over, shown_number(mu, l2(x)));
  print_step("variance", "σ² = mean of (x − μ)²", shown_number(variance));
  print_step("deviation", "σ = √σ²", shown_number(std::sqrt(variance)));
  print_step("normalised", "z = (x − μ)/√(σ² + ε)",
             shown(map(x, [&](double v) { return (v - mu) / std::sqrt(variance + eps); })));
}

void explain_norm(NormKind kind, const Vector& x) {
  const NormRow& row = norm_row(kind);
  ModelConfig config;
  config.norm = kind;
  config.norm_groups = x.size() % 2 == 0 ? 2 : 1;
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n  x = " << shown(x)
            << ", ε = " << shown_number(config.norm_eps) << "\n\n";
  const auto n = static_cast<std::ptrdiff_t>(x.size());
  switch (kind) {
    case NormKind::layernorm:
      print_mean_and_variance(x, "the features", config.norm_eps);
      break;
    case NormKind::batchnorm:
      print_mean_and_variance(x, "all tokens of the batch", config.norm_eps);
      break;
    case NormKind::instancenorm:
      print_mean_and_variance(x, "the tokens of a sequence", config.norm_eps);
      break;
    case NormKind::rmsnorm: {
      const double square = mean(map(x, [](double v) { return v * v; }));
      print_step("mean square", "mean of x²", shown_number(square));
      print_step("rms", "√(mean of x² + ε)", shown_number(std::sqrt(square + config.norm_eps)));
      print_step("normalised", "z = x / rms",
                 shown(map(x, [&](double v) { return v / std::sqrt(square + config.norm_eps); })));
      break;
    }
    case NormKind::groupnorm:
      for (std::ptrdiff_t group = 0; group < config.norm_groups; ++group) {
        const std::ptrdiff_t width = n / config.norm_groups;
        const Vector part(x.begin() + group * width, x.begin() + (group + 1) * width);
        std::cout << "  group " << group + 1 << " of " << config.norm_groups << ": " << shown(part) << '\n';
        print_mean_and_variance(part, "the group", config.norm_eps);
      }
      break;
    case NormKind::dyt:
      print_step("scaled", "αx, α = 0.5", shown(map(x, [](double v) { return 0.5 * v; })));
      print_step("squashed", "z = tanh(αx)", shown(map(x, [](double v) { return std::tanh(0.5 * v); })));
      break;
    case NormKind::none:
      break;
  }
  std::cout << "\n  y = " << shown(by_engine(config, x))
            << (row.has_bias   ? "   (gain 1, bias 0)"
                : row.has_gain ? "   (gain 1)"
                               : "")
            << "\n";
  if (row.has_running)
    std::cout << "  in evaluation: the running mean and variance, new = 0.9 old + 0.1 batch\n";
  if (row.non_causal()) std::cout << "  in a causal model it leaks: a token's output depends on later tokens\n";

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
    out += ", init of v, attn.out, ffn times " + fixed(row.init_gain.of(n_layer), 4);
  return out;
}

// A block's two lines, with the names of its norms; as a config has them, that may have no norms or
// residuals.
void print_equations(const Placement& row, bool norms = true, bool residual = true) {
  const auto sublayer = [&](const std::string& f, const std::string& norm, const std::string& second) {
    std::string in = norms && row.norm_in ? norm + "(x)" : "x";
    if (!row.input_scale.is_one()) in += "/√l";
    std::string branch = f + "(" + in + ")";
    if (row.learned_scale) branch = "a·" + branch;
    if (norms && row.norm_branch) branch = (row.norm_in ? second : norm) + "(" + branch + ")";
    std::string sum = (!residual ? "" : !row.alpha.is_one() ? "α·x + " : "x + ") + branch;
    if (norms && row.norm_out) sum = norm + "(" + sum + ")";
    std::cout << "    x = " << sum << '\n';
  };
  sublayer("attention", "attn_norm", "attn_post_norm");
  sublayer("ffn", "ffn_norm", "ffn_post_norm");
}

void explain_placement(const Placement& row) {
  std::cout << row.name << ": " << row.formula << "\n  " << row.source
            << "\n\n  block l, with the names of its norms:\n";
  print_equations(row);
  std::cout << "\n  embedding norm: " << (row.embed_norm ? "yes" : "no")
            << "; final norm before the head: " << (row.final_norm ? "yes" : "no") << '\n';
  for (const Index n_layer : {12, 24}) {
    const std::string constants = constants_of(row, n_layer);
    if (!constants.empty()) std::cout << "  L = " << n_layer << ": " << constants << '\n';
  }
  if (row.learned_scale) std::cout << "  a: one learned number a sublayer, 0 at the start\n";
}

void explain_mix() {
  std::cout << "mix: the first ceil(mix_post_fraction·L) blocks post, the rest pre\n"
               "  Mix-LN, Li et al. 2024 (arXiv 2412.13795)\n\n  blocks 1 to ⌈0.25·L⌉:\n";
  print_equations(placement_row(PlacementKind::post));
  std::cout << "  the rest:\n";
  print_equations(placement_row(PlacementKind::pre));
  std::cout << "\n  embedding norm: no; final norm before the head: yes\n";
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
  std::cout << (placements_of(m)[0]->embed_norm ? ", then embed_norm" : "") << '\n';
  const std::vector<const Placement*> rows = placements_of(m);
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t end = first;
    while (end < rows.size() && rows[end] == rows[first]) ++end;
    std::cout << "  blocks " << first + 1 << " to " << end << " (" << rows[first]->name << "):\n";
    print_equations(*rows[first], m.norm != NormKind::none, m.residual);
    const std::string constants = constants_of(*rows[first], m.n_layer);
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
      if (p.name.find("norm") != std::string::npos) norms += p.size;
    }
    std::cout << "    " << label << std::string(label.size() < 22 ? 22 - label.size() : 1, ' ')
              << grouped(total) << (norms > 0 ? ", of them norms " + grouped(norms) : "") << '\n';
  };
  print_layer("embeddings", 0);
  print_layer(text("block 1 of ", m.n_layer), 1);
  print_layer("head and final norm", static_cast<int>(m.n_layer) + 1);
  std::cout << "    in all                " << grouped(layout.count()) << '\n';
}

void list_all() {
  std::cout << "norms (--norm NAME shows the arithmetic, of --vector 1,2,3,4 if you like)\n";
  for (const NormRow& row : norm_table()) {
    const std::string name = row.name;
    std::cout << "  " << name << std::string(14 - name.size(), ' ') << row.formula << '\n';
  }
  std::cout << "\nplacements (--placement NAME shows the equations; F is attention, then the FFN)\n";
  for (const Placement& row : placement_table()) {
    const std::string name = row.name;
    std::cout << "  " << name << std::string(14 - name.size(), ' ') << row.formula << '\n';
  }
  std::cout << "  mix           the first quarter of the blocks post, the rest pre\n\n"
               "`normscope explain CONFIG` shows a config's own blocks.\n";
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
    const PlacementKind kind = parse_name<PlacementKind>("placement", *placement);
    kind == PlacementKind::mix ? explain_mix() : explain_placement(placement_row(kind));
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
