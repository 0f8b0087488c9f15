#include "theory/token_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/eigen.h"

namespace normscope {
namespace {

// V k V^T, or with `back` V^T k V.
Kernel rotated(const Kernel& v, const Kernel& k, bool back) {
  const auto at = [&](Index i, Index t) { return back ? v(t, i) : v(i, t); };
  Kernel half(k.size), full(k.size);
  for (Index i = 0; i < k.size; ++i) {
    for (Index t = 0; t < k.size; ++t) {
      for (Index s = 0; s < k.size; ++s) half(i, s) += at(i, t) * k(t, s);
    }
  }
  for (Index i = 0; i < k.size; ++i) {
    for (Index j = 0; j < k.size; ++j) {
      for (Index s = 0; s < k.size; ++s) full(i, j) += half(i, s) * at(j, s);
    }
  }
  return full;
}

Kernel centred(const Kernel& k) {
  const double n = static_cast<double>(k.size);
  std::vector<double> row(static_cast<std::size_t>(k.size));
  double all = 0;
  for (Index t = 0; t < k.size; ++t) {
    for (Index s = 0; s < k.size; ++s) row[t] += k(t, s) / n;
    all += row[t] / n;
  }
  return Kernel(k.size, [&](Index t, Index s) { return k(t, s) - row[t] - row[s] + all; });
}

}  // namespace

TokenNorm::TokenNorm(Kernel& kernel, double epsilon) {
  const double n = static_cast<double>(kernel.size);
  vectors_ = centred(kernel);
  const double mean = vectors_.mean_square();
  std::vector<double> w = eigenvalues(kernel.size, vectors_.values.data(), /*want_vectors=*/true);
  for (double& value : w) value = std::max(value, 0.0);
  Kernel squares(kernel.size);  // diagonal: E w_j g_j^2 / (V + eps)
  direction_.resize(w.size());
  const double step = 0.04;
  for (double at = std::log(1e-7); at < std::log(1e7); at += step) {
    const double s = std::exp(at) / mean;
    double base = -s * epsilon;
    for (const double value : w) base -= 0.5 * std::log1p(2 * s * value / n);
    base = std::exp(base) * s * step;  // times ds
    inverse_ += base;
    for (Index j = 0; j < kernel.size; ++j) {
      const double part = base * w[j] / (1 + 2 * s * w[j] / n);
      squares(j, j) += part;
      direction_[j] += part * s / n;
    }
  }
  kernel = rotated(vectors_, squares, /*back=*/true);
}

Kernel TokenNorm::backward(const Kernel& gradient) const {
  const Kernel g = rotated(vectors_, centred(gradient), /*back=*/false);
  double along = 0;  // sum_j direction_j G_jj
  for (Index j = 0; j < g.size; ++j) along += direction_[j] * g(j, j);
  // Terms with an odd power of some g_j have mean 0: of u^T G u only squares are left.
  return rotated(vectors_,
                 Kernel(g.size,
                        [&](Index i, Index j) {
                          const double both = direction_[i] * direction_[j] / inverse_;
                          const double off = g(i, j) * (inverse_ - direction_[i] - direction_[j] + 2 * both);
                          return i != j ? off : off + direction_[i] * along / inverse_ - 2 * g(i, i) * both;
                        }),
                 /*back=*/true);
}

}  // namespace normscope
