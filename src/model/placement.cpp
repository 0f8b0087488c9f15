#include "model/placement.h"

#include <array>
#include <cmath>

#include "core/error.h"

namespace normscope {
namespace {

double one(Index) { return 1.0; }
double inverse_sqrt(Index block) { return 1.0 / std::sqrt(static_cast<double>(block)); }
// Wang et al. 2022, table 1, decoder only: alpha = (2L)^(1/4), beta = (8L)^(-1/4).
double deepnorm_alpha(Index n_layer) { return std::pow(2.0 * static_cast<double>(n_layer), 0.25); }
double deepnorm_beta(Index n_layer) { return std::pow(8.0 * static_cast<double>(n_layer), -0.25); }

using enum PlacementKind;

// clang-format off
constexpr std::array<Placement, 9> table = {{
  // kind, name, formula, source,                                                       in     branch out    embed  final  scale  alpha           input_scale   init_gain
  {pre,        "pre",        "y = x + F(N(x))",         "Xiong et al. 2020 (arXiv 2002.04745), GPT-2",   true,  false, false, false, true,  false, one,            one,          one},
  {post,       "post",       "y = N(x + F(x))",         "Vaswani et al. 2017 (arXiv 1706.03762)",        false, false, true,  false, false, false, one,            one,          one},
  {sandwich,   "sandwich",   "y = x + N2(F(N1(x)))",    "CogView, Ding et al. 2021 (arXiv 2105.13290)",  true,  true,  false, false, true,  false, one,            one,          one},
  {peri,       "peri",       "y = x + N2(F(N1(x))), x0 = N(embedding)", "Peri-LN, Kim et al. 2025 (arXiv 2502.02732)", true, true, false, true, true, false, one,    one,          one},
  {res_post,   "res_post",   "y = x + N(F(x))",         "Swin v2, Liu et al. 2021 (arXiv 2111.09883); OLMo 2", false, true, false, false, true, false, one,        one,          one},
  {deepnorm,   "deepnorm",   "y = N(alpha*x + F(x))",   "DeepNet, Wang et al. 2022 (arXiv 2203.00555)",  false, false, true,  false, false, false, deepnorm_alpha, one,          deepnorm_beta},
  {pre_scaled, "pre_scaled", "y = x + F(N(x)/sqrt(l))", "LayerNorm scaling, Sun et al. 2025 (arXiv 2502.05795)", true, false, false, false, true, false, one,       inverse_sqrt, one},
  {rezero,     "rezero",     "y = x + a*F(x)",          "ReZero, Bachlechner et al. 2020 (arXiv 2003.04887)", false, false, false, false, false, true, one,        one,          one},
  {none,       "none",       "y = x + F(x)",            "the control",                                   false, false, false, false, false, false, one,           one,          one},
}};
// clang-format on

}  // namespace

std::span<const Placement> placement_table() { return table; }

const Placement& placement_row(PlacementKind kind) {
  for (const Placement& row : table) {
    if (row.kind == kind) return row;
  }
  fail("placement", "no row for placement ", static_cast<int>(kind), "; mix is resolved block by block");
}

std::vector<const Placement*> placements_of(const ModelConfig& config) {
  const auto blocks = static_cast<std::size_t>(config.n_layer);
  const std::vector<PlacementKind>& written = config.norm_placement;
  std::vector<const Placement*> rows(blocks);
  if (written.size() == 1 && written[0] == mix) {
    // Mix-LN (Li et al. 2024, arXiv 2412.13795): the first ceil(f*L) blocks post, the rest pre. The 1e-9
    // keeps a product such as 0.1*10, just above its true value, from counting one block too many.
    const double share = config.mix_post_fraction * static_cast<double>(config.n_layer);
    const auto post_blocks = static_cast<std::size_t>(std::ceil(share - 1e-9));
    for (std::size_t i = 0; i < blocks; ++i) rows[i] = &placement_row(i < post_blocks ? post : pre);
    return rows;
  }
  require(written.size() == 1 || written.size() == blocks, "placement", "got ", written.size(),
          " placements for ", blocks, " blocks");
  for (std::size_t i = 0; i < blocks; ++i) rows[i] = &placement_row(written[written.size() == 1 ? 0 : i]);
  return rows;
}

}  // namespace normscope
