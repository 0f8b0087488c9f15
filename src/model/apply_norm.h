// The code of each norm, on the tape.
#pragma once

#include "model/config.h"
#include "ops/ops.h"

namespace normscope {

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
