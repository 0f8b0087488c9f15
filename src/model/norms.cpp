#include "model/norms.h"

#include <array>

namespace normscope {
namespace {

using enum NormKind;

// clang-format off
constexpr std::array<NormRow, 3> table = {{
  // kind, name, formula, source,                                                                              gain   bias
  {layernorm, "layernorm", "y = g*(x - mean(x))/sqrt(var(x) + eps) + b", "Ba et al. 2016 (arXiv 1607.06450)",      true,  true},
  {rmsnorm,   "rmsnorm",   "y = g*x/sqrt(mean(x^2) + eps)",              "Zhang & Sennrich 2019 (arXiv 1910.07467)", true,  false},
  {none,      "none",      "y = x",                                      "the control",                            false, false},
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
Var<Real> apply_norm(Tape<Real>& tape, const ModelConfig& config, const NormVars<Real>& vars, Var<Real> x) {
  if (config.norm == none) return x;
  const bool centred = config.norm == layernorm;
  const RowNorm<Real> norm{x.cols, 1, centred, static_cast<Real>(config.norm_eps), config.norm_eps_outside};
  return row_norm(tape, norm, x, vars.weight, vars.bias);
}

template Var<float> apply_norm(Tape<float>&, const ModelConfig&, const NormVars<float>&, Var<float>);
template Var<double> apply_norm(Tape<double>&, const ModelConfig&, const NormVars<double>&, Var<double>);

}  // namespace normscope
