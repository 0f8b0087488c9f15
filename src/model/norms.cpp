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

template <class Real>
Var<Real> apply_norm(Tape<Real>& tape, const ModelConfig& config, const NormVars<Real>& vars,
                     const NormPass& pass, Var<Real> x) {
  const Real eps = static_cast<Real>(config.norm_eps);
  const bool outside = config.norm_eps_outside;
  const auto over_features = [&](Index groups, bool centred) {
    return row_norm(tape, {x.cols, groups, centred, eps, outside}, x, vars.weight, vars.bias);
  };
  switch (config.norm) {
    case layernorm:
      return over_features(1, true);
    case rmsnorm:
      return over_features(1, false);
    case groupnorm:
      return over_features(config.norm_groups, true);
    case dyt:
      return dynamic_tanh(tape, x, vars.alpha, vars.weight, vars.bias);
    case instancenorm:
      return column_norm(tape, {x.cols, pass.context, eps, outside}, x, vars.weight, vars.bias);
    case batchnorm: {
      const ColumnNorm<Real> norm{x.cols, x.rows, eps, outside};
      return pass.by_running_statistics
                 ? column_norm_by_running_statistics(tape, norm, x, vars.weight, vars.bias, vars.running)
                 : column_norm(tape, norm, x, vars.weight, vars.bias, vars.running);
    }
    case none:
      return x;
  }
  return x;
}

template Var<float> apply_norm(Tape<float>&, const ModelConfig&, const NormVars<float>&, const NormPass&,
                               Var<float>);
template Var<double> apply_norm(Tape<double>&, const ModelConfig&, const NormVars<double>&, const NormPass&,
                                Var<double>);

}  // namespace normscope
