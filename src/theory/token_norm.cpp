#include "theory/token_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/eigen.h"
#include "kernels/gemm/openblas.h"

namespace normscope {
namespace {

// V k V^T, or with `back` V^T k V.
Kernel rotated(Kernel v, Kernel k, bool back) {
  const Index n = k.size;
  Kernel half(n), full(n);
  const auto view = [n](Kernel& kernel, bool transposed = false) {
    Matrix<double> matrix(kernel.values.data(), n, n);
    matrix.transposed = transposed;
    return matrix;
  };
  openblas_gemm({.a = view(v, back), .b = view(k), .c = view(half)});
  openblas_gemm({.a = view(half), .b = view(v, !back), .c = view(full)});
  return full;
}

Kernel centred(const Kernel& k) {
  const double n = real(k.size);
  std::vector<double> row(k.size);
  double all = 0;
  for (Index t = 0; t < k.size; ++t) {
    for (Index s = 0; s < k.size; ++s) row[t] += k(t, s) / n;
    all += row[t] / n;
  }
  return Kernel(k.size, [&](Index t, Index s) { return k(t, s) - row[t] - row[s] + all; });
}

}  // namespace

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
  modes_.push_back({1, {}, {}});
  if (sequences > 1) modes_.push_back({sequences_ - 1, {}, {}});
  std::vector<Kernel> squares = split(kernel);  // diagonal: E w_j g_j^2 / (V + eps)
  const double T = real(squares[0].size), n = sequences_ * T;
  double mean = 0;
  std::vector<std::vector<double>> w;
  for (std::size_t m = 0; m < modes_.size(); ++m) {
    Mode& mode = modes_[m];
    mode.vectors = squares[m];
    mean += mode.multiplicity * mode.vectors.mean_square() * T / n;
    w.push_back(eigenvalues(mode.vectors.size, mode.vectors.values.data(), /*want_vectors=*/true));
    for (double& value : w[m]) value = std::max(value, 0.0);
    mode.direction.resize(w[m].size());
    squares[m] = Kernel(mode.vectors.size);
  }
  const double step = 0.04;
  for (double at = std::log(1e-7); at < std::log(1e7); at += step) {
    const double s = std::exp(at) / mean;
    double base = -s * epsilon;
    for (std::size_t m = 0; m < modes_.size(); ++m) {
      for (const double value : w[m]) base -= 0.5 * modes_[m].multiplicity * std::log1p(2 * s * value / n);
    }
    base = std::exp(base) * s * step;  // times ds
    inverse_ += base;
    for (std::size_t m = 0; m < modes_.size(); ++m) {
      for (Index j = 0; j < squares[m].size; ++j) {
        const double part = base * w[m][j] / (1 + 2 * s * w[m][j] / n);
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

}  // namespace normscope
