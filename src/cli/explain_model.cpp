// A placement's drawing, equations and gradient; a config's own blocks and parameter counts.
#include <iostream>
#include <set>
#include <utility>

#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/terminal.h"
#include "core/text.h"
#include "io/utf8.h"
#include "model/parameters.h"

namespace normscope {
namespace {

// "·l^-0.5"; "·(2l)^0.5".
std::string power_text(const Power& power) {
  return text("·", power.base == 1 ? "l" : "(" + significant_text(power.base) + "l)", "^", power.exponent);
}

// "L = 12: α = 2.2134, init gain 0.3195 of v, ..."; empty where both are 1.
std::string constants_of(const Placement& row, Index n_layer) {
  if (row.alpha.is_one() && row.init_gain.is_one()) return "";
  std::string line = text("L = ", n_layer, ": α = ", fixed(row.alpha.of(n_layer), 4));
  if (!row.init_gain.is_one())
    line += text("; v, attn.out and the FFN's matrices start at ", fixed(row.init_gain.of(n_layer), 4),
                 " times their init");
  return line;
}

// A sublayer's line, with the names of its norms: "x = x + attention(attn_norm(x))".
std::string equation(const Placement& row, const ModelConfig& m, const std::string& f,
                     const std::string& name) {
  std::string next_norm = name + "_norm";
  const auto norm = [&](const std::string& of) {
    if (m.norm == NormKind::none) return of;
    return std::exchange(next_norm, name + "_post_norm") + "(" + of + ")";
  };
  const auto [learned, start] = branch_scale_of(m, row);
  const bool is_scaled = learned != LearnedScale::none || start != 1;
  std::string y = row.norm_in ? norm("x") : "x";
  if (!row.input_scale.is_one()) y += power_text(row.input_scale);
  y = f + "(" + y + ")";
  if (row.norm_branch) y = norm(y);
  if (is_scaled) y = "a·" + y;
  if (m.residual) y = (row.alpha.is_one() ? "x + " : "α·x + ") + y;
  if (row.norm_out) y = norm(y);
  if (is_scaled)
    y += text(", a = ", significant_text(start),
              learned == LearnedScale::none ? "" : " at the start, learned");
  if (has_inner_norm(m, row)) y += ", " + name + ".inner_norm before its output matrix";
  return "x = " + y;
}

// Draws a sublayer: its branch, where the skip connection joins it, and its gradient.
void print_sublayer(const Placement& row) {
  std::string branch = "    x ─┬─", skip = "       └─";
  if (row.norm_in) branch += "[ N ]─";
  if (!row.input_scale.is_one()) branch += "[ " + power_text(row.input_scale) + " ]─";
  branch += "[ F ]─";
  if (row.norm_branch) branch += "[ N ]─";
  if (row.learned_scale) branch += "[ ·a ]─";
  if (!row.alpha.is_one()) skip += "[ ·α ]─";
  while (shown_width(skip) <= shown_width(branch)) skip += "─";
  std::cout << branch << "(+)─" << (row.norm_out ? "[ N ]─" : "") << " y\n"
            << skip << "┘\n    dx = (" << (row.alpha.is_one() ? "1" : "α") << " + "
            << (row.learned_scale ? "a·" : "") << "F′)"
            << (row.norm_out ? " N′ dy, N′ the norm's derivative at the sum" : " dy") << '\n';
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
    for (const std::string& constants :
         std::set{constants_of(*attn, m.n_layer), constants_of(*ffn, m.n_layer)})
      if (!constants.empty()) std::cout << "    " << constants << '\n';
  }
}

void print_sublayers(const ModelConfig& m) {
  const std::string bias = m.bias ? " + b" : "", ffn_bias = m.ffn_bias ? " + b" : "";
  const std::string in = "(x·W_in" + ffn_bias + ")";
  std::cout << "  attention(x) = softmax(q kᵀ/√" << m.d_model / m.n_head << ", causal)·v·W_out" << bias
            << ", q, k, v = x·W_qkv" << bias << (m.qkv_norm ? ", each RMS-normed by head" : "")
            << (m.qk_norm && !m.qkv_norm ? ", q and k RMS-normed by head" : "")
            << (m.position == Position::rope ? ", q and k rotated by position (RoPE)" : "") << "\n  ffn(x) = "
            << (m.activation == Activation::swiglu ? "silu(x·W_gate" + ffn_bias + ")·" + in
                                                   : name_of(m.activation) + in)
            << "·W_out" << ffn_bias << '\n';
}

void print_parameters(const ModelConfig& m, Index vocabulary) {
  const ParameterLayout layout(m, vocabulary);
  Columns table = {{"parameters"}, {"all"}, {"of norms"}};
  const std::pair<std::string, Index> parts[] = {
      {"embeddings", 0}, {text("block 1 of ", m.n_layer), 1}, {"head and final norm", m.n_layer + 1}};
  for (const auto& [label, layer] : parts) {
    Index total = 0, norms = 0;
    for (const Parameter& p : layout.list()) {
      if (p.layer == layer) total += p.size;
      if (p.layer == layer && p.is_norm()) norms += p.size;
    }
    add_row(table, {label, grouped(total), grouped(norms)});
  }
  add_row(table, {"in all", grouped(layout.count()), ""});
  std::cout << '\n';
  print_table(table);
}

}  // namespace

void explain_placement(const Placement& row) {
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n";
  if (row.pattern == nullptr)
    print_sublayer(row);
  else
    std::cout << "  a pattern of other placements\n";
  std::cout << "  embedding norm: " << (row.embed_norm ? "yes" : "no")
            << "; final norm before the head: " << (row.final_norm ? "yes" : "no") << '\n';
  if (const std::string constants = constants_of(row, 12); !constants.empty())
    std::cout << "  " << constants << '\n';
}

void explain_config(const RunConfig& config) {
  const ModelConfig& m = config.model;
  std::cout << config.name << ": " << m.n_layer << " blocks, width " << m.d_model << ", " << m.n_head
            << " heads of " << m.d_model / m.n_head << ", FFN " << m.d_ff << ", " << name_of(m.norm)
            << ", context " << m.context << "\n\n  x = token"
            << (m.position == Position::learned || m.position == Position::sinusoidal ? " + position" : "")
            << (m.norm != NormKind::none && placements_of(m)[0].attn->embed_norm ? ", then embed_norm" : "")
            << '\n';
  print_blocks(m);
  print_sublayers(m);
  std::cout << "  logits = head(" << (m.final_norm ? "final_norm(x)" : "x") << ")"
            << (m.tie_embeddings ? ", the head is the token embedding" : "") << std::endl;
  print_parameters(m, corpus_of(config).vocab.size());  // an Error if the text cannot be read
}

}  // namespace normscope
