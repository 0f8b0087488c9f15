// A placement's drawing, equations and gradient; a config's own blocks and parameter counts.
#include <iostream>
#include <utility>

#include "cli/explain.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "core/text.h"
#include "io/utf8.h"
#include "model/parameters.h"

namespace normscope {
namespace {

constexpr Index vocabulary_for_counts = 65;  // where the text is not at hand; tinyshakespeare has 65

// "/√l"; "·(2l)^0.5".
std::string power_text(const Power& power) {
  if (power.base == 1 && power.exponent == -0.5) return "/√l";
  return text("·", power.base == 1 ? "l" : "(" + shown_number(power.base) + "l)", "^",
              shown_number(power.exponent));
}

// "α = 2.2134; v, attn.out and the FFN's matrices start at 0.3195 times their init". Empty: 1 and 1.
std::string constants_of(const Placement& row, Index n_layer) {
  std::vector<std::string> all;
  if (!row.alpha.is_one()) all.push_back("α = " + fixed(row.alpha.of(n_layer), 4));
  if (!row.init_gain.is_one())
    all.push_back("v, attn.out and the FFN's matrices start at " + fixed(row.init_gain.of(n_layer), 4) +
                  " times their init");
  return join(all, "; ");
}

// A sublayer's line, with the names of its norms: "x = x + attention(attn_norm(x))".
std::string equation(const Placement& row, const ModelConfig& m, const std::string& f,
                     const std::string& name) {
  std::string next = name + "_norm";
  const auto norm = [&](bool present, const std::string& x) {
    return m.norm != NormKind::none && present ? std::exchange(next, name + "_post_norm") + "(" + x + ")" : x;
  };
  const auto [learned, start] = branch_scale_of(m, row);
  const bool scaled = learned != LearnedScale::none || start != 1;
  const std::string in =
      norm(row.norm_in, "x") + (row.input_scale.is_one() ? "" : power_text(row.input_scale));
  const std::string branch = (scaled ? "a·" : "") + norm(row.norm_branch, f + "(" + in + ")");
  std::string line = "x = " + norm(row.norm_out, (!m.residual          ? ""
                                                  : row.alpha.is_one() ? "x + "
                                                                       : "α·x + ") +
                                                     branch);
  if (scaled)
    line += text(", a = ", shown_number(start), learned == LearnedScale::none ? "" : " at the start, learned",
                 learned == LearnedScale::vector ? " for each feature" : "");
  if (has_inner_norm(m, row)) line += ", " + name + ".inner_norm before its output matrix";
  return line;
}

// Draws a sublayer: its branch, and where the skip connection joins it.
void print_drawing(const Placement& row) {
  std::string branch = "    x ─┬─", skip = "       └─";
  if (row.norm_in) branch += "[ N ]─";
  if (!row.input_scale.is_one()) branch += "[ " + power_text(row.input_scale) + " ]─";
  branch += "[ F ]─";
  if (row.norm_branch) branch += "[ N ]─";
  if (row.learned_scale) branch += "[ ·a ]─";
  if (!row.alpha.is_one()) skip += "[ ·α ]─";
  while (shown_width(skip) <= shown_width(branch)) skip += "─";
  std::cout << branch << "(+)─" << (row.norm_out ? "[ N ]─" : "") << " y\n" << skip << "┘\n";
}

void print_sublayer(const Placement& row) {
  print_drawing(row);
  std::cout << "    dx = (" << (row.alpha.is_one() ? "1" : "α") << " + " << (row.learned_scale ? "a·" : "")
            << "F′)" << (row.norm_out ? " N′ dy, N′ the norm's derivative at the sum" : " dy") << '\n';
}

// Neighbouring blocks with equal rows together: "blocks 1 to 3 (post):" and their equations.
void print_blocks(const ModelConfig& m) {
  const std::vector<BlockRows> rows = placements_of(m);
  for (std::size_t first = 0, end = 0; first < rows.size(); first = end) {
    while (end < rows.size() && rows[end] == rows[first]) ++end;
    const auto& [attn, ffn] = rows[first];
    std::cout << "  blocks " << first + 1 << " to " << end << " (" << placement_name({attn->kind, ffn->kind})
              << "):\n    " << equation(*attn, m, "attention", "attn") << "\n    "
              << equation(*ffn, m, "ffn", "ffn") << '\n';
    for (const Placement* row : {attn, ffn}) {
      const std::string constants = constants_of(*row, m.n_layer);
      if (!constants.empty()) std::cout << "    " << row->name << ": " << constants << '\n';
      if (attn == ffn) break;
    }
  }
}

void print_sublayers(const ModelConfig& m) {
  const std::string bias = m.bias ? " + b" : "", ffn_bias = m.ffn_bias ? " + b" : "";
  const std::string activated = m.activation == Activation::swiglu
                                    ? "silu(x·W_gate" + ffn_bias + ")·(x·W_in" + ffn_bias + ")"
                                    : text(name_of(m.activation), "(x·W_in", ffn_bias, ")");
  std::cout << "  attention(x) = softmax(q kᵀ/√" << m.d_model / m.n_head << ", causal)·v·W_out" << bias
            << ", q, k, v = x·W_qkv" << bias << (m.qkv_norm ? ", each RMS-normed by head" : "")
            << (m.qk_norm && !m.qkv_norm ? ", q and k RMS-normed by head" : "")
            << (m.position == Position::rope ? ", q and k rotated by position (RoPE)" : "")
            << "\n  ffn(x) = " << activated << "·W_out" << ffn_bias << '\n';
}

// The characters of the config's text, if it can be read.
std::optional<Index> vocabulary_of(const RunConfig& config) {
  try {
    return corpus_of(config).vocab.size();
  } catch (const Error&) {
    return std::nullopt;
  }
}

void print_parameters(const ModelConfig& m, std::optional<Index> vocabulary) {
  const ParameterLayout layout(m, vocabulary.value_or(vocabulary_for_counts));
  std::cout << "\n  parameters (" << vocabulary.value_or(vocabulary_for_counts) << " characters"
            << (vocabulary ? "" : ", since the text cannot be read") << ")\n";
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
              << (norms > 0 ? ", norms " + grouped(norms) : "") << '\n';
  }
  std::cout << "    in all                " << grouped(layout.count()) << '\n';
}

}  // namespace

void explain_placement(const Placement& row) {
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n";
  if (const Pattern* pattern = row.pattern) {
    const auto part = [](const char* blocks, const BlockPlacement& block) {
      std::cout << "  " << blocks << ": " << placement_name(block) << '\n';
      print_sublayer(placement_row(block.attn));
      if (block.attn != block.ffn) print_sublayer(placement_row(block.ffn));
    };
    if (pattern->first_blocks != FirstBlocks::none) part("the first blocks", pattern->first);
    part("the other blocks", pattern->rest);
  } else {
    print_sublayer(row);
  }
  if (row.inner_norm)
    std::cout << "  a norm before the output matrix of attention and of the FFN (inner_norm)\n";
  if (row.qkv_norm) std::cout << "  RMSNorm of each head's queries, keys and values (qkv_norm)\n";
  std::cout << "  embedding norm: " << (row.embed_norm ? "yes" : "no")
            << "; final norm before the head: " << (row.final_norm ? "yes" : "no") << '\n';
  if (const std::string constants = constants_of(row, 12); !constants.empty())
    std::cout << "  L = 12: " << constants << '\n';
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
