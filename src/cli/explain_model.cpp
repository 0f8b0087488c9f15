// A placement's drawing, equations and gradient; a config's own blocks and parameter counts.
#include <cmath>
#include <iostream>
#include <utility>

#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/terminal.h"
#include "core/text.h"
#include "io/utf8.h"
#include "model/parameters.h"

namespace normscope {
namespace {

// "·l^-0.5", the factor on the input of block l's sublayers; "" if it is 1.
std::string input_factor(const Placement& row) {
  return row.input_scale.is_one() ? "" : text("·l^", row.input_scale.exponent);
}

// A sublayer's line, with the names of its norms: "x = x + attention(attn_norm(x))".
std::string equation(const Placement& row, const ModelConfig& m, const std::string& f,
                     const std::string& name) {
  std::string next_norm = name + "_norm";
  const auto norm = [&](bool is_there, const std::string& y) {
    if (!is_there || m.norm == NormKind::none) return y;
    return std::exchange(next_norm, name + "_post_norm") + "(" + y + ")";
  };
  std::string y = f + "(" + norm(row.norm_in, "x") + input_factor(row) + ")";
  y = norm(row.norm_branch, y);
  const auto [learned, start] = branch_scale_of(m, row);
  if (learned != LearnedScale::none) y = name + "_scale·" + y;
  if (learned == LearnedScale::none && start != 1) y = significant_text(start) + "·" + y;
  if (m.residual) y = (row.alpha.is_one() ? "" : fixed(row.alpha.of(m.n_layer), 4) + "·") + "x + " + y;
  y = norm(row.norm_out, y);
  return "x = " + y + (has_inner_norm(m, row) ? ", " + name + ".inner_norm before its output matrix" : "");
}

// The factor N′ by which a norm on the sum multiplies the gradient in every sublayer, and why it matters.
void explain_factor(const Placement& row) {
  constexpr Index L = 12;
  const double alpha = row.alpha.of(L), kept = alpha / std::sqrt(alpha * alpha + 1);
  const bool is_plain = row.alpha.is_one();
  std::cout << "  Under pre the 1 passes the gradient on unchanged. Here every sublayer also multiplies it\n"
               "  by N′, about 1/size of the sum: layer norm has dx = (g − mean(g) − x̂ mean(g x̂))/σ with\n"
               "  g = γ dy. If x and F have size 1 and are independent, the sum has size "
            << (is_plain ? "√2" : "√(α² + 1)") << ", and the\n  skip keeps "
            << (is_plain ? "1/√2" : "α/√(α² + 1)") << " of the gradient. L = " << L << ": " << fixed(kept, 4)
            << " in a sublayer, " << significant_text(std::pow(kept, 2 * L), 3) << " in " << 2 * L
            << " sublayers.\n"
               "  Attention averages tokens, which makes their vectors alike. Pre keeps x itself,\n"
               "  unaveraged, on the skip; here each norm shrinks it by the same factor, and with it all\n"
               "  that still sets tokens apart.\n";
}

}  // namespace

void explain_placement(const Placement& row) {
  std::cout << row.name << ": " << row.formula << "\n  " << row.source << "\n\n";
  const auto box = [](bool is_there, const std::string& f) { return is_there ? "[ " + f + " ]─" : ""; };
  const std::string branch = "    x ─┬─" + box(row.norm_in, "N") +
                             box(!row.input_scale.is_one(), input_factor(row)) + "[ F ]─" +
                             box(row.norm_branch, "N") + box(row.learned_scale, "·a");
  std::string skip = "       └─" + box(!row.alpha.is_one(), "·α");
  while (shown_width(skip) <= shown_width(branch)) skip += "─";
  std::cout << branch << "(+)─" << box(row.norm_out, "N") << " y\n"
            << skip << "┘\n    dx = (" << (row.alpha.is_one() ? "1" : "α") << " + "
            << (row.learned_scale ? "a·" : "") << "F′)"
            << (row.norm_out ? " N′ dy, N′ the norm's derivative at the sum" : " dy") << '\n';
  if (row.norm_out) explain_factor(row);
  std::cout << "  embedding norm: " << (row.embed_norm ? "yes" : "no")
            << "; final norm before the head: " << (row.final_norm ? "yes" : "no") << '\n';
  if (!row.alpha.is_one()) std::cout << "  L = 12: α = " << fixed(row.alpha.of(12), 4) << '\n';
  if (!row.init_factor.is_one())
    std::cout << "  L = 12: v, attn.out and the FFN's matrices start at " << fixed(row.init_factor.of(12), 4)
              << " times their init\n";
}

void explain_config(const RunConfig& config) {
  const ModelConfig& m = config.model;
  const std::vector<BlockPlacement> rows = placements_of(m);
  std::cout << config.name << ": " << m.n_layer << " blocks, width " << m.d_model << ", " << name_of(m.norm)
            << "\n  x = token"
            << (m.position == Position::learned || m.position == Position::sinusoidal ? " + position" : "")
            << (has_embed_norm(m) ? ", then embed_norm" : "") << '\n';
  for (std::size_t first = 0, end = 0; first < rows.size(); first = end) {
    while (end < rows.size() && rows[end] == rows[first]) ++end;
    const auto& [attn, ffn] = rows[first];
    std::cout << "  blocks " << first + 1 << " to " << end << " (" << rows[first].name() << "):\n    "
              << equation(*attn, m, "attention", "attn") << "\n    " << equation(*ffn, m, "ffn", "ffn")
              << '\n';
  }
  std::cout << "  logits = head(" << (m.final_norm ? "final_norm(x)" : "x") << ")"
            << (m.tie_embeddings ? ", the head is the token embedding" : "") << std::endl;
  const ParameterLayout layout(m, corpus_of(config).vocab.size());  // an Error if the text cannot be read
  Rows table = {{"parameters", "numbers"}};
  for (const Parameter& p : layout.list())
    if (p.layer <= 1 || p.layer > m.n_layer) table.push_back({p.name, grouped(p.size)});
  table.push_back({text("all, with ", counted(m.n_layer, "block")), grouped(layout.count())});
  print_table(table);
}

}  // namespace normscope
