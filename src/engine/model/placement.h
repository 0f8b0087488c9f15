// The placements of norms around a sublayer F, a row each, data only. The config's allowed values and checks,
// the block's code, the parameters' names, `explain` and the choices of the scripts (through `config
// --schema`) follow from the row. check/equations.cpp and scripts/lib/model/forward.py state each equation once
// more, on purpose.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "core/portable_math.h"
#include "core/types.h"

namespace normscope {

enum class PlacementKind {
  pre,
  post,
  sandwich,
  peri,
  res_post,
  deepnorm,
  pre_scaled,
  rezero,
  none,
  keel,
  subln
};

// factor * (base * n)^exponent, n the number of blocks or the number of a block; 1 by default.
struct DepthFactor {
  double base = 1, exponent = 0;
  bool log = false;  // factor * (ln(base * n))^exponent
  double factor = 1;

  double of(Index n) const {
    const double x = base * static_cast<double>(n);
    return factor * portable::pow(log ? portable::log(x) : x, exponent);
  }
  bool is_one() const { return exponent == 0 && factor == 1; }
};

// y = N_out(alpha * x + a * N_branch(F(input_scale * N_in(x)))), where a false flag removes its N.
struct Placement {
  PlacementKind kind;
  const char* name;
  const char* formula;
  const char* source;
  bool norm_in = false;        // a norm on what F reads
  bool norm_branch = false;    // a norm on what F returns
  bool norm_out = false;       // a norm on the sum
  bool embed_norm = false;     // a norm on the embedding output; in a list, block 1's attention decides
                               // (its FFN must agree, and later blocks have none)
  bool final_norm = false;     // the default of `final_norm`, a norm before the head; in a list, the last
                               // FFN decides. A block that ends in a norm (post, deepnorm, keel) needs none;
                               // rezero and none have no norms. A pattern has one
  bool learned_scale = false;  // a is a parameter, 0 at the start, and `branch_scale` has no effect
  bool residual_scaling = true;  // the default of init.residual_scaling with scheme gpt2; in a list, false
                                 // as soon as one row says false
  bool inner_norm = false;       // a norm before the output matrix, even if `inner_norm` is false
  DepthFactor alpha = {};        // factor of the stream in the sum, of L
  DepthFactor input_scale = {};  // factor on what F reads, of the block's number (from 1)
  DepthFactor init_factor = {};  // factor on the init of v, attn.out, ffn.in, ffn.gate, ffn.out, of L

  bool has_norms() const { return norm_in || norm_branch || norm_out; }
};

// clang-format off
inline constexpr Placement placement_rows[] = {
    {.kind = PlacementKind::pre, .name = "pre", .formula = "y = x + F(N(x))",
     .source = "Xiong et al. 2020 (arXiv 2002.04745), GPT-2", .norm_in = true, .final_norm = true},
    {.kind = PlacementKind::post, .name = "post", .formula = "y = N(x + F(x))",
     .source = "Vaswani et al. 2017 (arXiv 1706.03762)", .norm_out = true},
    {.kind = PlacementKind::sandwich, .name = "sandwich", .formula = "y = x + N2(F(N1(x)))",
     .source = "CogView, Ding et al. 2021 (arXiv 2105.13290)",
     .norm_in = true, .norm_branch = true, .final_norm = true},
    {.kind = PlacementKind::peri, .name = "peri", .formula = "y = x + N2(F(N1(x))), x0 = N(embedding)",
     .source = "Peri-LN, Kim et al. 2025 (arXiv 2502.02732)",
     .norm_in = true, .norm_branch = true, .embed_norm = true, .final_norm = true},
    {.kind = PlacementKind::res_post, .name = "res_post", .formula = "y = x + N(F(x))",
     .source = "Swin v2, Liu et al. 2021 (arXiv 2111.09883); OLMo 2",
     .norm_branch = true, .final_norm = true},
    // Table 1 of DeepNet, decoder only: alpha = (2L)^(1/4), beta = (8L)^(-1/4).
    {.kind = PlacementKind::deepnorm, .name = "deepnorm", .formula = "y = N(αx + F(x))",
     .source = "DeepNet, Wang et al. 2022 (arXiv 2203.00555)",
     .norm_out = true, .residual_scaling = false, .alpha = {2, 0.25}, .init_factor = {8, -0.25}},
    {.kind = PlacementKind::pre_scaled, .name = "pre_scaled", .formula = "y = x + F(N(x)/√l)",
     .source = "LayerNorm scaling, Sun et al. 2025 (arXiv 2502.05795)",
     .norm_in = true, .final_norm = true, .residual_scaling = false, .input_scale = {1, -0.5}},
    {.kind = PlacementKind::rezero, .name = "rezero", .formula = "y = x + a·F(x)",
     .source = "ReZero, Bachlechner et al. 2020 (arXiv 2003.04887)", .learned_scale = true},
    {.kind = PlacementKind::none, .name = "none", .formula = "y = x + F(x)",
     .source = "the control"},
    {.kind = PlacementKind::keel, .name = "keel", .formula = "y = N2(2L·x + F(N1(x)))",
     .source = "Keel, Chen & Wei 2026 (arXiv 2601.19895)",
     .norm_in = true, .norm_out = true, .residual_scaling = false, .alpha = {2, 1}},
    // Gamma for decoders: sqrt(ln(2L)).
    {.kind = PlacementKind::subln, .name = "subln", .formula = "y = x + F(N(x)), a norm before each output matrix",
     .source = "Magneto, Wang et al. 2022 (arXiv 2210.06423)",
     .norm_in = true, .final_norm = true, .residual_scaling = false, .inner_norm = true,
     .init_factor = {2, 0.5, true}},
};
// clang-format on

// A sublayer's norms are named <sublayer>_norm and <sublayer>_post_norm: a third has no name in weight files.
static_assert(std::ranges::all_of(placement_rows, [](const Placement& p) {
  return p.norm_in + p.norm_branch + p.norm_out <= 2;
}));

std::span<const Placement> placement_table();  // placement_rows
const Placement& placement_row(PlacementKind kind);

// The placement of a block's attention and of its FFN.
struct BlockPlacement {
  const Placement *attn, *ffn;
  BlockPlacement(PlacementKind both) : BlockPlacement(both, both) {}
  BlockPlacement(PlacementKind of_attn, PlacementKind of_ffn)
      : attn(&placement_row(of_attn)), ffn(&placement_row(of_ffn)) {}
  bool operator==(const BlockPlacement&) const = default;

  std::string name() const;  // such as "post", or "post/none" if the sublayers differ
};

struct ModelConfig;
std::vector<BlockPlacement> placements_of(const ModelConfig& config);  // of each of the L blocks

// The factor of a sublayer's branch: a number, or the initial value of a parameter.
enum class LearnedScale { none, scalar, vector };
struct BranchScale {
  LearnedScale learned;
  double start;
};
BranchScale branch_scale_of(const ModelConfig& config, const Placement& placement);

// True if there is a norm on the embeddings: by the config, or by the placement of block 1.
bool has_embed_norm(const ModelConfig& config);

// True if a sublayer has a norm before its output matrix.
bool has_inner_norm(const ModelConfig& config, const Placement& placement);

}  // namespace normscope
