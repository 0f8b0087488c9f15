#include "theory/norms.h"

#include <cmath>

#include "core/error.h"
#include "model/parameters.h"
#include "theory/activations.h"

namespace normscope {
namespace {

constexpr double most_bent = 0.06;  // errors reach 3% of the activation here, and grow from norm to norm

// f(x) = tanh(alpha x).
Response tanh_response(const Kernel& kernel) {
  const double alpha = first_value(Role::norm_alpha);
  return smooth_response(kernel, [alpha](Index n, const double* x, double* y, double* derivative) {
    for (Index i = 0; i < n; ++i) {
      y[i] = std::tanh(alpha * x[i]);
      derivative[i] = alpha * (1 - y[i] * y[i]);
    }
  });
}

}  // namespace

NormMap::NormMap(const ModelConfig& config, Signal& x) {
  const NormRow& row = norm_row(config.norm);
  if (row.has_statistics()) x.noise = 0;
  const Index T = x.kernel.size;
  if (row.has_alpha) {
    if (x.bent > most_bent)
      refuse("predict", "no prediction: ", row.name, " after ", row.name,
             " on one stream leaves features that are "
             "far from Gaussian; try a norm with statistics");
    const double before = x.mean_square();
    Response response = tanh_response(x.kernel);
    x.kernel = std::move(response.value);
    slope_ = std::move(response.slope);
    for (Index t = 0; t < T; ++t) {
      x.share[t] *= response.gain[t];
      x.mean[t] = 0;
    }
    const double gain = response.gain[T / 2];  // f is nearly gain x
    x.bent = 1 - (1 - x.bent) * std::min(gain * gain * before / x.mean_square(), 1.0);
  } else if (row.over == NormOver::features || row.over == NormOver::groups) {
    for (Index t = 0; t < T; ++t) {
      const double mean = row.centred ? x.mean[t] : 0, variance = x.kernel(t, t) - mean * mean;
      rstd_.push_back(1 / (config.norm_eps_outside ? std::sqrt(variance) + config.norm_eps
                                                   : std::sqrt(variance + config.norm_eps)));
    }
    x.kernel = Kernel(T, [&](Index t, Index s) {
      return (x.kernel(t, s) - (row.centred ? x.mean[t] * x.mean[s] : 0)) * rstd_[t] * rstd_[s];
    });
    for (Index t = 0; t < T; ++t) {
      x.share[t] *= rstd_[t];
      x.mean[t] = row.centred ? 0 : x.mean[t] * rstd_[t];
    }
  } else if (row.has_statistics()) {
    refuse("predict", "no prediction: none is known for ", row.name, " here");
  }
}

Kernel NormMap::backward(const Kernel& gradient) const {
  if (!rstd_.empty())
    return Kernel(gradient.size, [&](Index t, Index s) { return gradient(t, s) * rstd_[t] * rstd_[s]; });
  if (slope_.size > 0)
    return Kernel(gradient.size, [&](Index t, Index s) { return gradient(t, s) * slope_(t, s); });
  return gradient;
}

}  // namespace normscope
