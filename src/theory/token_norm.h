// A norm of each feature over tokens, on kernels: exact for Gaussian features. The tokens are those of one
// sequence, or those of B sequences of which any two have the same kernel: kernels are then of 2T tokens, a
// sequence and another, [K K'; K' K].
//
// With P the centring over n tokens and w_j, v_j the eigenvalues and -vectors of PKP, a feature is
// sum_j sqrt(w_j) g_j v_j, g_j standard normal, its variance V = sum_j w_j g_j^2 / n, and from
// 1/(V + eps) = the integral of e^{-s(V + eps)} over s > 0 follows, with
// base(s) = prod_k (1 + 2 s w_k / n)^{-1/2} e^{-s eps},
//   E w_j g_j^2 / (V + eps) = integral of w_j / (1 + 2 s w_j / n) base(s),
//   E 1 / (V + eps) = integral of base(s),
//   E (w_j g_j^2 / n) / (V + eps)^2 = integral of s w_j / n / (1 + 2 s w_j / n) base(s).
//
// The kernel of B sequences is block-circulant: its eigenvectors are those of P(K + (B-1)K')P, the same in
// every sequence, and B-1 times those of K - K', which sum to 0 over the sequences.
#pragma once

#include <vector>

#include "theory/kernel.h"

namespace normscope {

class TokenNorm {
 public:
  TokenNorm() = default;
  // `kernel`, of one sequence or two, becomes that of the normalised features.
  TokenNorm(Kernel& kernel, double epsilon, Index sequences = 1);

  bool is_set() const { return inverse_ > 0; }
  double inverse() const { return inverse_; }     // E 1/(V + eps)
  Kernel backward(const Kernel& gradient) const;  // E (1/V)(P - uu^T) G (P - uu^T), u the unit feature

 private:
  struct Mode {
    double multiplicity;
    Kernel vectors;                 // (j, t): v_j
    std::vector<double> direction;  // of each j, the third mean above
  };
  std::vector<Kernel> split(const Kernel& kernel) const;  // into those of the modes
  Kernel joined(const std::vector<Kernel>& modes) const;  // and back
  double sequences_ = 1;
  std::vector<Mode> modes_;
  double inverse_ = 0;
};

}  // namespace normscope
