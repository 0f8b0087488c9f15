// The norms, a row each, data only. The config's allowed values and checks, the norm's parameters,
// `explain`'s table and the choices of the scripts (through `config --schema`) follow from the row.
// check/equations.cpp and scripts/lib/model/forward.py state each equation once more, on purpose; the recipe in
// src/README.md names all places.
#pragma once

#include <span>

namespace normscope {

enum class NormKind { layernorm, rmsnorm, batchnorm, groupnorm, instancenorm, dyt, derf, none };

// The numbers of (N, C) that share a mean and a variance: a token's features, a group of them, one feature of
// all tokens of the batch or of a sequence. nothing: no statistics.
enum class NormOver { nothing, features, groups, batch, sequence };

struct NormRow {
  NormKind kind;
  const char* name;
  const char* formula;
  const char* source;
  NormOver over = NormOver::features;
  bool centred = true;           // subtracts the mean
  bool has_gain = true;          // a parameter `weight` (C), if norm_affine
  bool has_bias = true;          // a parameter `bias` (C), if norm_affine and norm_bias
  bool has_alpha = false;        // a parameter `alpha` (1)
  bool has_shift = false;        // a parameter `shift` (1)
  bool has_running = false;      // `running_mean`, `running_var` (C): moved by each step, used in eval mode
  bool has_eps_outside = false;  // its code follows norm_eps_outside
  bool has_detached = false;     // its backward follows norm_detach

  bool has_statistics() const { return over != NormOver::nothing; }  // N(c x) = N(x), c > 0, at eps 0
  // True if outputs of a causal model depend on later characters.
  bool non_causal() const { return over == NormOver::batch || over == NormOver::sequence; }
};

// clang-format off
inline constexpr NormRow norm_rows[] = {
    {.kind = NormKind::layernorm, .name = "layernorm",
     .formula = "y = γ(x − μ)/√(σ² + ε) + β, over the features of a token",
     .source = "Ba et al. 2016 (arXiv 1607.06450)", .has_eps_outside = true, .has_detached = true},
    {.kind = NormKind::rmsnorm, .name = "rmsnorm",
     .formula = "y = γx/√(mean of x² + ε), over the features of a token",
     .source = "Zhang & Sennrich 2019 (arXiv 1910.07467)", .centred = false, .has_bias = false,
     .has_eps_outside = true, .has_detached = true},
    {.kind = NormKind::batchnorm, .name = "batchnorm",
     .formula = "y = γ(x − μ)/√(σ² + ε) + β, a feature over the whole batch",
     .source = "Ioffe & Szegedy 2015 (arXiv 1502.03167)", .over = NormOver::batch, .has_running = true,
     .has_eps_outside = true},
    {.kind = NormKind::groupnorm, .name = "groupnorm",
     .formula = "layernorm within norm_groups groups of a token's features",
     .source = "Wu & He 2018 (arXiv 1803.08494)", .over = NormOver::groups,
     .has_eps_outside = true, .has_detached = true},
    {.kind = NormKind::instancenorm, .name = "instancenorm",
     .formula = "y = γ(x − μ)/√(σ² + ε) + β, a feature over its sequence",
     .source = "Ulyanov et al. 2016 (arXiv 1607.08022)", .over = NormOver::sequence,
     .has_eps_outside = true},
    {.kind = NormKind::dyt, .name = "dyt", .formula = "y = γ tanh(αx) + β",
     .source = "Zhu et al. 2025 (arXiv 2503.10622)", .over = NormOver::nothing, .has_alpha = true},
    {.kind = NormKind::derf, .name = "derf", .formula = "y = γ erf(αx + s) + β",
     .source = "Chen et al. 2025 (arXiv 2512.10938)", .over = NormOver::nothing,
     .has_alpha = true, .has_shift = true},
    {.kind = NormKind::none, .name = "none", .formula = "y = x",
     .source = "the control", .over = NormOver::nothing, .has_gain = false, .has_bias = false},
};
// clang-format on

std::span<const NormRow> norm_table();  // norm_rows
const NormRow& norm_row(NormKind kind);

}  // namespace normscope
