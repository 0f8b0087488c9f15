#include "model/apply_norm.h"

namespace normscope {

using enum NormKind;

template <class Real>
Var<Real> apply_norm(Tape<Real>& tape, const ModelConfig& config, const NormVars<Real>& vars,
                     const Pass& pass, Var<Real> x, DType dtype) {
  const Real eps = static_cast<Real>(config.norm_eps);
  const bool outside = config.norm_eps_outside;
  const auto over_features = [&](Index groups, bool centred) {
    return layer_norm(tape, {.groups = groups, .centred = centred, .eps = eps, .eps_outside = outside}, x,
                      vars.weight, vars.bias, dtype);
  };
  switch (config.norm) {
    case layernorm:
      return over_features(1, true);
    case rmsnorm:
      return over_features(1, false);
    case groupnorm:
      return over_features(config.norm_groups, true);
    case dyt:
      return pointwise_norm(tape, Squash::tanh, x, vars.alpha, {}, vars.weight, vars.bias);
    case derf:
      return pointwise_norm(tape, Squash::erf, x, vars.alpha, vars.shift, vars.weight, vars.bias);
    case instancenorm:
      return batch_norm(tape, {pass.context, eps, outside}, x, vars.weight, vars.bias);
    case batchnorm: {
      const BatchNorm<Real> norm{x.rows, eps, outside};
      return pass.eval_mode ? batch_norm_inference(tape, norm, x, vars.weight, vars.bias, vars.running)
                            : batch_norm(tape, norm, x, vars.weight, vars.bias, vars.batch);
    }
    case none:
      return x;
  }
  fail("norm", "no code for norm number ", static_cast<int>(config.norm));
}

template Var<float> apply_norm(Tape<float>&, const ModelConfig&, const NormVars<float>&, const Pass&,
                               Var<float>, DType);
template Var<double> apply_norm(Tape<double>&, const ModelConfig&, const NormVars<double>&, const Pass&,
                                Var<double>, DType);

}  // namespace normscope
