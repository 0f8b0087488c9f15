// The computation of each norm on the tape.
#pragma once

#include "model/config.h"
#include "model/pass.h"
#include "ops/ops.h"

namespace normscope {

// The parameters of one norm on the tape; absent ones are empty.
template <class Real>
struct NormVars {
  Var<Real> weight, bias, alpha, shift;
  FeatureMoments<Real> running, batch;  // batch norm's: read in evaluation, written in training
};

// y = N(x), x: (N, C), with the config's norm; `none` returns x itself. `dtype`: of y, for norms of rows;
// bf16 if only GEMMs read y.
template <class Real>
Var<Real> apply_norm(Tape<Real>& tape, const ModelConfig& config, const NormVars<Real>& vars,
                     const Pass& pass, Var<Real> x, DType dtype = DType::real);

}  // namespace normscope
