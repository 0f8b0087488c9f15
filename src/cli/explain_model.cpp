// A placement: its drawing, equations, the gradient's path and what theory says; a config's own blocks.
#include <iostream>
#include <optional>
#include <utility>

#include "cli/explain.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "core/text.h"
#include "io/utf8.h"
#include "model/parameters.h"

namespace normscope {
namespace {

// The matrices of a block whose sublayers have one placement that its init_gain is for.
constexpr const char* all_matrices = "v, attn.out, ffn";

constexpr Index vocabulary_for_counts = 65;  // where the text is not at hand; tinyshakespeare has 65

// "α = 2.2134, init of v, attn.out, ffn times 0.3195": the constants that depend on L. `matrices`: those of
// the sublayers with this placement whose initial values it scales.
std::string constants_of(const ModelConfig& m, const Placement& row, const std::string& matrices) {
  std::vector<std::string> all;
  if (m.residual && !row.alpha.is_one()) all.push_back("α = " + fixed(row.alpha.of(m.n_layer), 4));
  if (!row.init_gain.is_one())
    all.push_back("init of " + matrices + " times " + fixed(row.init_gain.of(m.n_layer), 4));
  return join(all);
}

// "a = 0 at the start, learned": the branch's factor. Empty: 1.
std::string scale_of(const ModelConfig& m, const Placement& row) {
  const auto [learned, start] = branch_scale_of(m, row);
  if (learned == LearnedScale::none && start == 1) return "";
  return text("a = ", shown_number(start), learned == LearnedScale::none ? "" : " at the start, learned",
              learned == LearnedScale::vector ? " for each feature" : "");
}

// "/√l"; "·(2l)^0.5".
std::string power_text(const Power& power) {
  if (power.base == 1 && power.exponent == -0.5) return "/√l";
  return text("·", power.base == 1 ? "l" : "(" + shown_number(power.base) + "l)", "^",
              shown_number(power.exponent));
}

// A block's two lines, with the names of its norms. Without a config, those of the placement by itself.
void print_equations(const BlockRows& rows, const ModelConfig& m = {}) {
  const auto sublayer = [&](const Placement& row, const std::string& f, const std::string& name) {
    std::string next = name + "_norm";
    const auto norm = [&](bool present, const std::string& x) {
      return m.norm != NormKind::none && present ? std::exchange(next, name + "_post_norm") + "(" + x + ")"
                                                 : x;
    };
    std::string in = norm(row.norm_in, "x");
    if (!row.input_scale.is_one()) in += power_text(row.input_scale);
    const std::string branch =
        (scale_of(m, row).empty() ? "" : "a·") + norm(row.norm_branch, f + "(" + in + ")");
    const std::string x = !m.residual ? "" : row.alpha.is_one() ? "x + " : "α·x + ";
    std::cout << "    x = " << norm(row.norm_out, x + branch) << '\n';
  };
  sublayer(*rows.attn, "attention", "attn");
  sublayer(*rows.ffn, "ffn", "ffn");
}

// Draws the block: its branches, and where the skip connections join them. Two equal sublayers are drawn as
// one, F.
void print_drawing(const BlockRows& rows) {
  std::string line = "    x ─", skip;
  const auto draw = [&](const Placement& row, const std::string& name) {
    while (shown_width(skip) < shown_width(line)) skip += ' ';
    line += "┬─", skip += "└─";
    if (row.norm_in) line += "[ N ]─";
    if (!row.input_scale.is_one()) line += "[ " + power_text(row.input_scale) + " ]─";
    line += "[ " + name + " ]─";
    if (row.norm_branch) line += "[ N ]─";
    if (row.learned_scale) line += "[ ·a ]─";
    if (!row.alpha.is_one()) skip += "[ ·α ]─";
    while (shown_width(skip) <= shown_width(line)) skip += "─";
    line += "(+)─", skip += "┘";
    if (row.norm_out) line += "[ N ]─";
  };
  const bool alike = rows.attn == rows.ffn;
  draw(*rows.attn, alike ? "F" : "attention");
  if (!alike) draw(*rows.ffn, "ffn");
  std::cout << line << " y\n" << skip << "\n\n";
}

void print_gradient(const Placement& row, const char* of) {
  std::cout << "  gradient" << of << ": dx = (" << (row.alpha.is_one() ? "1" : "α") << " + "
            << (row.learned_scale ? "a·∂F/∂x" : "∂F/∂x") << ")"
            << (row.norm_out ? "·∂N/∂s·dy, s the sum under the norm" : "·dy") << '\n';
}

// The theory of such blocks at initialisation.
std::string theory_of(const BlockRows& rows) {
  const Placement& row = rows.attn->norm_out ? *rows.attn : *rows.ffn;
  if (row.learned_scale) return "a = 0 at the start: every block passes x and dx on as they are.";
  if (row.norm_out && rows.attn != rows.ffn)
    return "one norm a block sets the stream to mean square 1; the other sublayer adds to it,\n"
           "  and the next block's norm takes that growth back.";
  if (row.norm_out && row.alpha.is_one())
    return "the stream has mean square 1 after every block, so the last block's gradient does not\n"
           "  fall with L, and deep models need a warm-up (Xiong et al. 2020).";
  if (row.norm_out)
    return "the stream has mean square 1 after every block; α makes a branch's share of each sum\n"
           "  small, so that deep models train without a warm-up.";
  if (row.norm_branch)
    return "each branch adds mean square 1 whatever F's size, 1 + 2l after block l; of the weights\n"
           "  before the norm only the direction counts: ⟨W, dW⟩ = 0.";
  if (row.norm_in)
    return text("the stream's mean square grows by about the same in each block",
                row.input_scale.is_one() ? "" : ", over l in block l",
                ",\n  and its gradient falls as it grows: the 1 carries dy to block 1.");
  return "each branch multiplies the mean square of x forward, and of dx backward: both explode.";
}

void print_block(const BlockRows& rows) {
  print_drawing(rows);
  print_equations(rows);
  const bool alike = rows.attn == rows.ffn;
  print_gradient(*rows.attn, alike ? "" : " through attention's sum");
  if (!alike) print_gradient(*rows.ffn, " through the FFN's");
  std::cout << "  theory: " << theory_of(rows) << '\n';
}

// The number of characters in a config's text, nothing if it cannot be read.
std::optional<Index> vocabulary_of(const RunConfig& config) {
  try {
    return corpus_of(config).vocab.size();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Prints neighbouring blocks with equal rows together: "blocks 1 to 3 (post):" and their equations.
void print_blocks(const ModelConfig& m) {
  const std::vector<BlockRows> rows = placements_of(m);
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t end = first;
    while (end < rows.size() && rows[end] == rows[first]) ++end;
    const auto& [attn, ffn] = rows[first];
    std::cout << "  blocks " << first + 1 << " to " << end << " (" << placement_name({attn->kind, ffn->kind})
              << "):\n";
    print_equations(rows[first], m);
    const auto print = [](const std::string& of, const std::string& constants) {
      if (!constants.empty()) std::cout << "    " << of << constants << '\n';
    };
    const std::string attn_scale = scale_of(m, *attn), ffn_scale = scale_of(m, *ffn);
    print(attn_scale == ffn_scale ? "" : "attention: ", attn_scale);
    if (attn_scale != ffn_scale) print("ffn: ", ffn_scale);
    if (attn == ffn) {
      print("", constants_of(m, *attn, all_matrices));
    } else {
      print("attention: ", constants_of(m, *attn, "v, attn.out"));
      print("ffn: ", constants_of(m, *ffn, "its matrices"));
    }
    if (has_inner_norm(m, *attn)) std::cout << "    attn.inner_norm before attention's W_out\n";
    if (has_inner_norm(m, *ffn)) std::cout << "    ffn.inner_norm before the FFN's W_out\n";
    first = end;
  }
}

void print_sublayers(const ModelConfig& m) {
  const std::string bias = m.bias ? " + b" : "", ffn_bias = m.ffn_bias ? " + b" : "";
  const bool gated = m.activation == Activation::swiglu;
  std::cout << "  attention(x) = softmax(q kᵀ/√" << m.d_model / m.n_head << ", causal)·v·W_out" << bias
            << ", q, k, v = x·W_qkv" << bias
            << (m.qkv_norm  ? ", each RMS-normed by head"
                : m.qk_norm ? ", q and k RMS-normed by head"
                            : "")
            << (m.position == Position::rope ? ", q and k turned by position (RoPE)" : "")
            << "\n  ffn(x) = " << (gated ? "silu(x·W_gate" : std::string(name_of(m.activation)) + "(x·W_in")
            << ffn_bias << ")" << (gated ? "·(x·W_in" + ffn_bias + ")" : "") << "·W_out" << ffn_bias << '\n';
  if (m.dropout > 0)
    std::cout << "  dropout " << shown_number(m.dropout)
              << " in training, of the first x, of attention's weights and of what both return\n";
}

void print_parameters(const ModelConfig& m, std::optional<Index> vocabulary) {
  const ParameterLayout layout(m, vocabulary.value_or(vocabulary_for_counts));
  std::cout << "\n  parameters ("
            << (vocabulary ? text("its text has ", *vocabulary, " characters")
                           : text("its text cannot be read; with ", vocabulary_for_counts, " characters"))
            << ")\n";
  const std::pair<std::string, Index> parts[] = {
      {"embeddings", 0}, {text("block 1 of ", m.n_layer), 1}, {"head and final norm", m.n_layer + 1}};
  for (const auto& [label, layer] : parts) {
    Index total = 0, norms = 0;
    for (const Parameter& p : layout.list()) {
      if (p.layer != layer) continue;
      total += p.size;
      if (p.is_norm()) norms += p.size;
    }
    std::cout << "    " << aligned_left(label, 21) << ' ' << grouped(total)
              << (norms > 0 ? ", of them norms " + grouped(norms) : "") << '\n';
  }
  std::cout << "    in all                " << grouped(layout.count()) << '\n';
}

}  // namespace

void explain_placement(const Placement& row) {
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n";
  if (const Pattern* pattern = row.pattern) {
    const auto part = [](const char* title, const BlockPlacement& block) {
      std::cout << title;
      print_block({&placement_row(block.attn), &placement_row(block.ffn)});
    };
    const bool mixed = pattern->first_blocks == FirstBlocks::mix_post_fraction;
    if (pattern->first_blocks != FirstBlocks::none) {
      part(mixed ? "  blocks 1 to ⌈mix_post_fraction·L⌉:\n" : "  block 1:\n", pattern->first);
      std::cout << "\n  the rest:\n";
    }
    part("", pattern->rest);
  } else {
    print_block({&row, &row});
  }
  if (row.inner_norm)
    std::cout << "  a norm before the output matrix of attention and of the FFN (inner_norm)\n";
  if (row.qkv_norm) std::cout << "  queries, keys and values: RMS norm of each head (qkv_norm)\n";
  std::cout << "\n  embedding norm: " << (row.embed_norm ? "yes" : "no")
            << "; final norm before the head: " << (row.final_norm ? "yes" : "no") << '\n';
  for (const Index n_layer : {12, 24}) {
    ModelConfig config;
    config.n_layer = n_layer;
    const std::string constants = constants_of(config, row, all_matrices);
    if (!constants.empty()) std::cout << "  L = " << n_layer << ": " << constants << '\n';
  }
  if (row.learned_scale) std::cout << "  a: one learned number a sublayer, 0 at the start\n";
}

void explain_config(const RunConfig& config) {
  const ModelConfig& m = config.model;
  std::cout << config.name << ": " << m.n_layer << " blocks, width " << m.d_model << ", " << m.n_head
            << " heads of " << m.d_model / m.n_head << ", FFN " << m.d_ff << " (" << name_of(m.activation)
            << "), " << name_of(m.norm) << ", context " << m.context << "\n\n  x = token"
            << (m.position == Position::learned || m.position == Position::sinusoidal ? " + position" : "")
            << (m.norm != NormKind::none && placements_of(m)[0].attn->embed_norm ? ", then embed_norm" : "")
            << '\n';
  print_blocks(m);
  print_sublayers(m);
  std::cout << "  logits = head(" << (m.final_norm ? "final_norm(x)" : "x") << ")"
            << (m.tie_embeddings ? ", the head is the token embedding" : "") << '\n';
  print_parameters(m, vocabulary_of(config));
}

}  // namespace normscope
