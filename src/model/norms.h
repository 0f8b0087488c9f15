// The norms: one row each. The config's allowed values, the parameters a norm has, the code that runs it and
// the equations that are printed all follow from the row.
#pragma once

#include <span>

#include "model/config.h"
#include "ops/ops.h"

namespace normscope {

struct NormRow {
  NormKind kind;
  const char* name;
  const char* formula;
  const char* source;
  bool has_gain;     // a parameter `weight` (C), if norm_affine
  bool has_bias;     // a parameter `bias` (C), if norm_affine and norm_bias
  bool has_alpha;    // a parameter `alpha` (1)
  bool has_running;  // `running_mean`, `running_var` (C): moved by each step, used in evaluation, not trained
  bool leaks;        // over positions: in a causal model an output depends on later characters
};

std::span<const NormRow> norm_table();
const NormRow& norm_row(NormKind kind);

// The parameters of one norm on the tape; absent ones are empty.
template <class Real>
struct NormVars {
  Var<Real> weight, bias, alpha;
  RunningStatistics<Real> running;
};

// What of a pass a norm needs to know.
struct NormPass {
  Index context;               // T: rows a sequence
  bool by_running_statistics;  // batch norm in evaluation
  bool rounded = false;        // norms of rows: y rounded to bf16, for products alone
};

// y = N(x), x: (N, C), by the config's norm. `none` returns x itself.
template <class Real>
Var<Real> apply_norm(Tape<Real>& tape, const ModelConfig& config, const NormVars<Real>& vars,
                     const NormPass& pass, Var<Real> x);

}  // namespace normscope
