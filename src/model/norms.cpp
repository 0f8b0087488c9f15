#include "model/norms.h"

#include <array>

namespace normscope {
namespace {

using enum NormKind;

// clang-format off
constexpr std::array<NormRow, 7> table = {{
  // kind, name, formula, source,                                                                                      gain   bias   alpha  run    leaks
  {layernorm,    "layernorm",    "y = g*(x - mean(x))/sqrt(var(x) + eps) + b, over the features of a token", "Ba et al. 2016 (arXiv 1607.06450)", true, true, false, false, false},
  {rmsnorm,      "rmsnorm",      "y = g*x/sqrt(mean(x^2) + eps), over the features of a token", "Zhang & Sennrich 2019 (arXiv 1910.07467)", true,  false, false, false, false},
  {batchnorm,    "batchnorm",    "y = g*(x - mean(x))/sqrt(var(x) + eps) + b, a feature over all tokens of the batch", "Ioffe & Szegedy 2015 (arXiv 1502.03167)", true, true, false, true, true},
  {groupnorm,    "groupnorm",    "layernorm within norm_groups groups of a token's features", "Wu & He 2018 (arXiv 1803.08494)",     true,  true,  false, false, false},
  {instancenorm, "instancenorm", "y = g*(x - mean(x))/sqrt(var(x) + eps) + b, a feature over its sequence", "Ulyanov et al. 2016 (arXiv 1607.08022)", true, true, false, false, true},
  {dyt,          "dyt",          "y = g*tanh(alpha*x) + b",                                     "Zhu et al. 2025 (arXiv 2503.10622)",     true,  true,  true,  false, false},
  {none,         "none",         "y = x",                                                       "the control",                            false, false, false, false, false},
}};
// clang-format on

}  // namespace

std::span<const NormRow> norm_table() { return table; }

const NormRow& norm_row(NormKind kind) {
  for (const NormRow& row : table) {
    if (row.kind == kind) return row;
  }
  fail("norm", "no row for norm ", static_cast<int>(kind));
}

}  // namespace normscope
