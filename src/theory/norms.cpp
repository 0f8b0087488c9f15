#include "theory/norms.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/eigen.h"
#include "kernels/gemm/openblas.h"
#include "model/apply_norm.h"
#include "model/parameters.h"

namespace normscope {
namespace {

// The largest Signal::bent with a prediction. Up to it the activation is within 1% for norms without
// statistics, whose effect on the kurtosis is counted, and within 3% for norms over tokens. DyT in DeepNorm's
// place, far beyond it, would be 20% off.
constexpr double most_bent = 0.12, most_bent_tokens = 0.06;
// At shorter contexts most tokens of a batch are equal, so that a feature's variance over the batch varies
// more than mean kernels predict.
constexpr Index shortest_context_of_batch = 4;

// V k V^T, or with `back` V^T k V.
Kernel rotated(Kernel v, Kernel k, bool back) {
  const Index n = k.size;
  Kernel half(n), full(n);
  const auto view = [n](Kernel& kernel) { return Matrix<double>(kernel.values.data(), n, n); };
  openblas_gemm({.a = back ? view(v).t() : view(v), .b = view(k), .c = view(half)});
  openblas_gemm({.a = view(half), .b = back ? view(v) : view(v).t(), .c = view(full)});
  return full;
}

Kernel centred(const Kernel& k) {
  Kernel c(k.size);
  c.values = centred(k.size, k.size, k);
  return c;
}

}  // namespace

PointwiseFunction pointwise_norm(const ModelConfig& config) {  // the engine's own operation
  return [&config](Index n, const double* x, double* y, double* derivative) {
    Tape<double> tape;
    tape.reset();
    double alpha = first_value(Role::norm_alpha);
    NormVars<double> vars;
    vars.alpha = Tape<double>::constant(&alpha, 1, 1);
    std::fill_n(derivative, n, 0.0);
    const Var<double> out =
        apply_norm(tape, config, vars, Pass{}, tape.parameter(const_cast<double*>(x), derivative, n, 1));
    std::copy_n(out.value, n, y);
    tape.backward_from(out, std::vector<double>(n, 1).data());
  };
}

Response normed_hidden(const ModelConfig& config, const Kernel& argument, double& slope) {
  if (config.activation == Activation::swiglu)
    refuse("predict", "no prediction: swiglu leaves features that are far from Gaussian for an inner ",
           norm_row(config.norm).name, "; try rmsnorm");
  const PointwiseFunction phi = activation_function(config.activation), N = pointwise_norm(config);
  const auto response = [&](bool of_slope) {  // of N(phi(u)), or of N'(phi(u))
    return smooth_response(argument, [&](Index n, const double* u, double* y, double* derivative) {
      std::vector<double> hidden(n), phi_slope(hidden);
      phi(n, u, hidden.data(), phi_slope.data());
      N(n, hidden.data(), y, derivative);
      if (of_slope) std::copy_n(derivative, n, y);
      for (Index i = 0; i < n; ++i) derivative[i] *= phi_slope[i];
    });
  };
  slope = response(true).value.mean_square();
  return response(false);
}

std::vector<Kernel> TokenNorm::split(const Kernel& kernel) const {
  if (modes_.size() == 1) return {centred(kernel)};
  const Index T = kernel.size / 2;
  const auto with_other = [&](double factor) {
    return Kernel(T, [&](Index t, Index s) { return kernel(t, s) + factor * kernel(t, s + T); });
  };
  return {centred(with_other(sequences_ - 1)), with_other(-1)};
}

Kernel TokenNorm::joined(const std::vector<Kernel>& modes) const {
  if (modes.size() == 1) return modes[0];
  const Index T = modes[0].size;
  return Kernel(2 * T, [&](Index t, Index s) {
    const double one = modes[0](t % T, s % T), other = modes[1](t % T, s % T);
    return (one + ((t < T) == (s < T) ? sequences_ - 1 : -1) * other) / sequences_;
  });
}

TokenNorm::TokenNorm(Kernel& kernel, double epsilon, Index sequences) : sequences_(real(sequences)) {
  modes_.push_back({1});
  if (sequences > 1) modes_.push_back({sequences_ - 1});
  std::vector<Kernel> squares = split(kernel);  // diagonal: E w_j g_j^2 / (V + eps)
  const double T = real(squares[0].size), n = sequences_ * T;
  double mean = 0;
  for (std::size_t m = 0; m < modes_.size(); ++m) {
    Mode& mode = modes_[m];
    mode.vectors = squares[m];
    mean += mode.multiplicity * mode.vectors.mean_square() * T / n;
    mode.values = eigenvalues(mode.vectors.size, mode.vectors.values.data(), /*want_vectors=*/true);
    for (double& value : mode.values) value = std::max(value, 0.0);
    mode.direction.resize(mode.values.size());
    squares[m] = Kernel(mode.vectors.size);
  }
  const double step = 0.04;
  for (double at = std::log(1e-7); at < std::log(1e7); at += step) {
    const double s = std::exp(at) / mean;
    double base = -s * epsilon;
    for (const Mode& mode : modes_) {
      for (const double value : mode.values) base -= 0.5 * mode.multiplicity * std::log1p(2 * s * value / n);
    }
    base = std::exp(base) * s * step;  // times ds
    inverse_ += base;
    for (std::size_t m = 0; m < modes_.size(); ++m) {
      for (Index j = 0; j < squares[m].size; ++j) {
        const double value = modes_[m].values[j], part = base * value / (1 + 2 * s * value / n);
        squares[m](j, j) += part;
        modes_[m].direction[j] += part * s / n;
      }
    }
  }
  for (std::size_t m = 0; m < modes_.size(); ++m)
    squares[m] = rotated(modes_[m].vectors, squares[m], /*back=*/true);
  kernel = joined(squares);
}

Kernel TokenNorm::backward(const Kernel& gradient) const {
  std::vector<Kernel> modes = split(gradient);
  double along = 0;  // sum_j direction_j G_jj
  for (std::size_t m = 0; m < modes.size(); ++m) {
    modes[m] = rotated(modes_[m].vectors, modes[m], /*back=*/false);
    for (Index j = 0; j < modes[m].size; ++j)
      along += modes_[m].multiplicity * modes_[m].direction[j] * modes[m](j, j);
  }
  // Terms with an odd power of some g_j have mean 0: of u^T G u only squares are left.
  for (std::size_t m = 0; m < modes.size(); ++m) {
    const std::vector<double>& direction = modes_[m].direction;
    const Kernel& g = modes[m];
    modes[m] =
        rotated(modes_[m].vectors,
                Kernel(g.size,
                       [&](Index i, Index j) {
                         const double both = direction[i] * direction[j] / inverse_;
                         const double off = g(i, j) * (inverse_ - direction[i] - direction[j] + 2 * both);
                         return i != j ? off : off + direction[i] * along / inverse_ - 2 * g(i, i) * both;
                       }),
                /*back=*/true);
  }
  return joined(modes);
}

NormMap::NormMap(const ModelConfig& config, Signal& x, Index width, Index batch, double fresh) {
  const NormRow& row = norm_row(config.norm);
  if (row.has_statistics()) x.noise = 0;
  const Index T = x.kernel.size;
  const bool of_features = row.over == NormOver::features || row.over == NormOver::groups;
  if (row.over == NormOver::batch && config.context < shortest_context_of_batch)
    refuse("predict", "no prediction: ", row.name, " with model.context ", config.context,
           ", where most tokens of a batch are the same; it must be at least ", shortest_context_of_batch);
  if (!of_features && x.bent > (row.has_statistics() ? most_bent_tokens : most_bent))
    refuse("predict", "no prediction: a ", row.name,
           " would read features that are far from Gaussian; try layernorm or rmsnorm");
  if (row.kind == NormKind::none) return;
  if (!row.has_statistics()) {
    const double before = x.mean_square();
    Response response = smooth_response(x.kernel, pointwise_norm(config), x.excess);
    x.excess = response.excess;
    x.kernel = std::move(response.value);
    slope_ = std::move(response.slope);
    for (Index t = 0; t < T; ++t) {
      x.share[t] *= response.gain[t];
      x.mean[t] = 0;
    }
    const double gain = response.gain[T / 2];  // f is nearly gain x
    x.bent = 1 - (1 - x.bent) * std::min(gain * gain * before / x.mean_square(), 1.0);
  } else if (of_features) {
    // 1/V is larger in the mean than 1 / E V, by V's relative variance; the projections take what lies along
    // x and along the mean. Of one group the length of a sum is lost in the next norm, also by the branch, so
    // that nothing lies along it: what made x has a gain E |M^T M u|^2 / (E |M u|^2)^2 = 1 + wobble/2 there,
    // over the mean of all directions, and so less in the others.
    const Index groups = row.over == NormOver::groups ? config.norm_groups : 1;
    const bool sum = fresh < 1 && groups == 1;
    const double removed = (row.centred ? fresh : 0) + (sum ? (x.wobble - x.length) / 2 : fresh),
                 features = real(width) / real(groups);
    finite_ = 1 + (x.wobble - removed) / features;
    x.wobble = x.length = 0;
    const Kernel centred(
        T, [&](Index t, Index s) { return x.kernel(t, s) - (row.centred ? x.mean[t] * x.mean[s] : 0); });
    inverse = 0;
    for (Index t = 0; t < T; ++t) {
      const double variance = centred(t, t), eps = config.norm_eps;
      rstd_.push_back(1 / (config.norm_eps_outside ? std::sqrt(variance) + eps : std::sqrt(variance + eps)));
      inverse += rstd_[t] * rstd_[t] / real(T);
      x.share[t] *= rstd_[t];
      x.mean[t] *= row.centred ? 0 : rstd_[t];
    }
    x.kernel = Kernel(T, [&](Index t, Index s) { return centred(t, s) * rstd_[t] * rstd_[s]; });
  } else {
    const double eps = config.norm_eps, outside = eps * (2 * std::sqrt(x.mean_square()) + eps);
    tokens_ =
        TokenNorm(x.kernel, config.norm_eps_outside ? outside : eps, row.over == NormOver::batch ? batch : 1);
    inverse = tokens_.inverse();
    for (double& share : x.share) share *= std::sqrt(inverse);
    x.bent = 1;
  }
}

Kernel NormMap::backward(const Kernel& gradient) const {
  if (!rstd_.empty())
    return Kernel(gradient.size,
                  [&](Index t, Index s) { return finite_ * gradient(t, s) * rstd_[t] * rstd_[s]; });
  if (tokens_.is_set()) return tokens_.backward(gradient);
  if (slope_.size > 0)
    return Kernel(gradient.size, [&](Index t, Index s) { return gradient(t, s) * slope_(t, s); });
  return gradient;
}

}  // namespace normscope
