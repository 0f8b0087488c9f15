// normscope explain: a norm's arithmetic with its numbers, a placement's equations, a config's blocks.
#include "cli/explain.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <utility>

#include "cli/commands.h"
#include "cli/predict.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "config/load.h"
#include "config/names.h"
#include "core/error.h"
#include "core/text.h"
#include "io/utf8.h"
#include "model/parameters.h"

namespace normscope {
namespace {

using Vector = std::vector<double>;

constexpr Index vocabulary_for_counts = 65;  // where the text is not at hand; tinyshakespeare has 65

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
void print_equations(const BlockRows& rows, bool norms = true, bool residual = true, bool scaled = false) {
  const auto sublayer = [&](const Placement& row, const std::string& f, const std::string& name) {
    std::string next = name + "_norm";
    const auto norm = [&](bool present, const std::string& x) {
      return norms && present ? std::exchange(next, name + "_post_norm") + "(" + x + ")" : x;
    };
    std::string in = norm(row.norm_in, "x");
    if (!row.input_scale.is_one()) in += power_of(row.input_scale, "l");
    const std::string branch =
        (row.learned_scale || scaled ? "a·" : "") + norm(row.norm_branch, f + "(" + in + ")");
    std::string x = !residual ? "" : row.alpha.is_one() ? "x + " : "α·x + ";
    if (residual && row.block_skip && name == "ffn") x += "(the block's input) + ";
    std::cout << "    x = " << norm(row.norm_out, x + branch) << '\n';
  };
  sublayer(*rows.attn, "attention", "attn");
  sublayer(*rows.ffn, "ffn", "ffn");
}

// The sublayer as a drawing: what stands on the branch, and where the skip connection joins it.
void print_diagram(const Placement& row) {
  std::string line = "    x ─┬─", skip = "       └─";
  if (row.norm_in) line += "[ N ]─";
  if (!row.input_scale.is_one()) line += "[ " + power_of(row.input_scale, "l") + " ]─";
  line += row.learned_scale ? "[ F ]─[ ·a ]─" : "[ F ]─";
  if (row.norm_branch) line += "[ N ]─";
  if (!row.alpha.is_one()) skip += "[ ·α ]";
  while (shown_width(skip) <= shown_width(line)) skip += "─";
  std::cout << line << "(+)─" << (row.norm_out ? "[ N ]─ y\n" : " y\n") << skip << "┘\n\n";
}

// How a gradient passes the sublayer, and what theory says of such rows at initialisation.
void print_theory(const Placement& row) {
  const std::string jacobian = std::string("(") + (row.alpha.is_one() ? "1" : "α") + " + " +
                               (row.learned_scale ? "a·∂F/∂x" : "∂F/∂x") + ")";
  std::cout << "  gradient: dx = " << jacobian
            << (row.norm_out ? "·∂N/∂s·dy, s the sum under the norm" : "·dy") << "\n  theory: ";
  if (row.learned_scale) {
    std::cout << "a = 0 at the start: every block passes x and dx on as they are.\n";
  } else if (row.norm_out) {
    std::cout << "the stream has mean square 1 after every block"
              << (row.block_skip       ? "; the block's input is a second way past the first norm.\n"
                  : row.alpha.is_one() ? ", so the last block's gradient does not fall with L, and\n"
                                         "  deep models need a warm-up (Xiong et al. 2020).\n"
                                       : "; α makes a branch's share of each sum small, so that deep\n"
                                         "  models train without a warm-up.\n");
  } else if (row.norm_branch) {
    std::cout << "each branch adds mean square 1 whatever F's size, 1 + 2l after block l; of the weights\n"
                 "  before the norm only the direction counts: ⟨W, dW⟩ = 0.\n";
  } else if (row.norm_in) {
    std::cout << "the stream's mean square grows by about the same in each block"
              << (row.input_scale.is_one() ? "" : ", over l in block l")
              << ", and its\n  gradient falls as it grows: the 1 carries dy to block 1.\n";
  } else {
    std::cout << "each branch multiplies the mean square of x forward, and of dx backward: both explode.\n";
  }
}

void explain_placement(const Placement& row) {
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n";
  if (row.pattern == nullptr) print_diagram(row);
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
  if (row.inner_norm)
    std::cout << "  attention.out and ffn.out read through norms of their own (inner_norm)\n";
  if (row.qkv_norm) std::cout << "  queries, keys and values: RMS norm of each head\n";
  std::cout << "\n  embedding norm: " << (row.embed_norm ? "yes" : "no")
            << "; final norm before the head: " << (row.final_norm ? "yes" : "no") << '\n';
  for (const Index n_layer : {12, 24}) {
    const std::string constants = constants_of(row, n_layer);
    if (!constants.empty()) std::cout << "  L = " << n_layer << ": " << constants << '\n';
  }
  if (row.learned_scale) std::cout << "  a: one learned number a sublayer, 0 at the start\n";
  if (row.pattern == nullptr) print_theory(row);
  std::cout << "  L = 12, before training (context 1, Xavier, ReLU; normscope predict CONFIG: of yours):\n"
            << start_text(row, 12);
}

// What a config's text is to the theory, if it can be read now.
std::optional<TextStatistics> read_statistics(const RunConfig& config) {
  try {
    return text_statistics(corpus_of(config), config.model.context);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void explain_config(const RunConfig& config) {
  const ModelConfig& m = config.model;
  const std::optional<TextStatistics> statistics = read_statistics(config);
  const ParameterLayout layout(m, statistics ? statistics->vocabulary : vocabulary_for_counts);
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
    const auto [learned, start] = branch_scale_of(m, *rows[first].attn);
    const bool scaled = learned != LearnedScale::none || start != 1;
    print_equations(rows[first], m.norm != NormKind::none, m.residual, scaled);
    if (scaled)
      std::cout << "    a = " << shown_number(start)
                << (learned == LearnedScale::scalar   ? " at the start, learned"
                    : learned == LearnedScale::vector ? " at the start, learned for each feature"
                                                      : "")
                << '\n';
    const std::string constants = constants_of(*rows[first].attn, m.n_layer);
    if (!constants.empty()) std::cout << "    " << constants << '\n';
    first = end;
  }
  const bool gated = m.activation == Activation::swiglu;
  std::cout << "  attention(x) = softmax(q kᵀ/√" << m.d_model / m.n_head << ", causal)·v·W_out"
            << (m.bias ? " + b" : "") << ", q, k, v = x·W_qkv" << (m.bias ? " + b" : "") << '\n'
            << "  ffn(x) = " << (gated ? "silu(x·W_gate" : std::string(name_of(m.activation)) + "(x·W_in")
            << (m.ffn_bias ? " + b)" : ")")
            << (gated ? std::string("·(x·W_in") + (m.ffn_bias ? " + b)" : ")") : "") << "·W_out"
            << (m.ffn_bias ? " + b" : "") << '\n';
  std::cout << "  logits = head(" << (m.final_norm ? "final_norm(x)" : "x") << ")"
            << (m.tie_embeddings ? ", the head is the token embedding" : "") << "\n\n  parameters ("
            << (statistics ? text("its text has ", statistics->vocabulary, " characters")
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
  if (statistics)
    std::cout << "\n  before training (normscope predict says more)\n" << start_text(m, *statistics, "    ");
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

Vector parse_vector(const std::string& option, const std::string& list) {
  constexpr std::size_t most = 65536;
  Vector values;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    char* end = nullptr;
    const double value = std::strtod(part.c_str(), &end);
    if (part.empty() || *end != '\0' || !std::isfinite(value)) {
      refuse("explain", option, ": got '", escape_controls(part),
             "'; expected numbers with commas, such as 1,2,3,4");
    }
    values.push_back(value);
  }
  if (values.empty() || values.size() > most)
    refuse("explain", option, ": got ", values.size(), " numbers; expected 1 to ", most);
  return values;
}

// "1,2;3,4": a token's features between semicolons.
Numbers parse_matrix(const std::string& list) {
  Numbers matrix;
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line, ';'); ++matrix.rows) {
    const Vector row = parse_vector("--matrix", line);
    const auto cols = static_cast<std::ptrdiff_t>(row.size());
    if (matrix.rows > 0 && cols != matrix.cols)
      refuse("explain", "--matrix: row ", matrix.rows + 1, " has ", cols, " numbers; expected ", matrix.cols);
    matrix.cols = cols;
    matrix.values.insert(matrix.values.end(), row.begin(), row.end());
  }
  if (matrix.rows == 0) refuse("explain", "--matrix: got none; expected rows such as 1,2;3,4");
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
    const bool all = !only;  // then a norm takes what it has
    explain_axis(
        row.kind, x,
        {all && !row.has_gain ? Vector{} : affine.gain, all && !row.has_bias ? Vector{} : affine.bias});
  }
}

// The whole lesson.
void explain_all() {
  const Vector example = {1, 2, 3, 4};
  for (const NormRow& row : norm_table()) {
    explain_norm(row.kind, example, {});
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
  if (line.has("all")) {
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
  const std::optional<std::string> placement = line.text_of("placement");
  if (matrix) {
    explain_matrix(parse_matrix(*line.text_of("matrix")), norm, affine);
  } else if (numbers || norm) {
    explain_norm(norm.value_or(NormKind::layernorm),
                 parse_vector("--vector", line.text_of("vector").value_or("1,2,3,4")), affine);
  }
  const bool worked = matrix || numbers || norm;
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
