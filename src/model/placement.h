// Where the norms sit around a sublayer F: a name and a row a placement, data only. The config's allowed
// values and checks, the block's code, the parameters' names, `explain`, `check` and the scripts (through
// `config --schema`) follow from the row.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "core/types.h"

namespace normscope {

enum class PlacementKind {
  pre,
  post,
  sandwich,
  peri,
  res_post,
  deepnorm,
  keel,
  pre_scaled,
  mix,
  rezero,
  none
};

// (base * n)^exponent: a factor that goes with the depth. 1 unless a row says otherwise.
struct Power {
  double base = 1, exponent = 0;
  double of(Index n) const { return std::pow(base * static_cast<double>(n), exponent); }
  bool is_one() const { return exponent == 0; }
};

// y = N_out(alpha * x + N_branch(a * F(input_scale * N_in(x)))), each N only where its flag says so.
struct Placement {
  PlacementKind kind;
  const char* name;
  const char* formula;
  const char* source;
  bool norm_in = false;          // a norm on what F reads
  bool norm_branch = false;      // a norm on what F returns
  bool norm_out = false;         // a norm on the sum
  bool embed_norm = false;       // a norm on the embedding output, before block 1
  bool final_norm = false;       // `final_norm: auto` means a norm before the head
  bool learned_scale = false;    // a: a parameter, 0 at start
  bool residual_scaling = true;  // what init.residual_scaling is under gpt2, unless the config says so
  bool mix = false;              // no formula of its own: the first blocks post, the rest pre
  Power alpha = {};              // factor of the stream in the sum, of L
  Power input_scale = {};        // factor on what F reads, of the block's number (from 1)
  Power init_gain = {};          // factor on the init of v, attn.out, ffn.in, ffn.gate, ffn.out, of L

  bool has_norms() const { return norm_in || norm_branch || norm_out || mix; }
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
    // Its table 1, decoder only: alpha = (2L)^(1/4), beta = (8L)^(-1/4).
    {.kind = PlacementKind::deepnorm, .name = "deepnorm", .formula = "y = N(alpha*x + F(x))",
     .source = "DeepNet, Wang et al. 2022 (arXiv 2203.00555)",
     .norm_out = true, .residual_scaling = false, .alpha = {2, 0.25}, .init_gain = {8, -0.25}},
    {.kind = PlacementKind::keel, .name = "keel", .formula = "y = N2(2L*x + F(N1(x)))",
     .source = "Keel, Chen & Wei 2026 (arXiv 2601.19895)",
     .norm_in = true, .norm_out = true, .residual_scaling = false, .alpha = {2, 1}},
    {.kind = PlacementKind::pre_scaled, .name = "pre_scaled", .formula = "y = x + F(N(x)/sqrt(l))",
     .source = "LayerNorm scaling, Sun et al. 2025 (arXiv 2502.05795)",
     .norm_in = true, .final_norm = true, .residual_scaling = false, .input_scale = {1, -0.5}},
    {.kind = PlacementKind::mix, .name = "mix",
     .formula = "the first ceil(mix_post_fraction*L) blocks post, the rest pre",
     .source = "Mix-LN, Li et al. 2024 (arXiv 2412.13795)", .final_norm = true, .mix = true},
    {.kind = PlacementKind::rezero, .name = "rezero", .formula = "y = x + a*F(x)",
     .source = "ReZero, Bachlechner et al. 2020 (arXiv 2003.04887)", .learned_scale = true},
    {.kind = PlacementKind::none, .name = "none", .formula = "y = x + F(x)",
     .source = "the control"},
};
// clang-format on

std::span<const Placement> placement_table();  // placement_rows
const Placement& placement_row(PlacementKind kind);

// The row of each block, L of them: a single placement repeated, a list as given, `mix` spelled out.
struct ModelConfig;
std::vector<const Placement*> placements_of(const ModelConfig& config);

}  // namespace normscope
