// A norm of each feature over the tokens of its sequence, on kernels: exact for Gaussian features.
//
// With P the centring over n = T tokens and w_j, v_j the eigenvalues and -vectors of PKP, a feature is
// sum_j sqrt(w_j) g_j v_j, g_j standard normal, its variance V = sum_j w_j g_j^2 / n, and from
// 1/(V + eps) = the integral of e^{-s(V + eps)} over s > 0 follows, with
// base(s) = prod_k (1 + 2 s w_k / n)^{-1/2} e^{-s eps},
//   E w_j g_j^2 / (V + eps) = integral of w_j / (1 + 2 s w_j / n) base(s),
//   E 1 / (V + eps) = integral of base(s),
//   E (w_j g_j^2 / n) / (V + eps)^2 = integral of s w_j / n / (1 + 2 s w_j / n) base(s).
#pragma once

#include <vector>

#include "theory/kernel.h"

namespace normscope {

class TokenNorm {
 public:
  TokenNorm() = default;
  TokenNorm(Kernel& kernel, double epsilon);  // `kernel` becomes that of the normalised features

  bool is_set() const { return inverse_ > 0; }
  double inverse() const { return inverse_; }     // E 1/(V + eps)
  Kernel backward(const Kernel& gradient) const;  // E (1/V)(P - uu^T) G (P - uu^T), u the unit feature

 private:
  Kernel vectors_;                 // (j, t): v_j
  std::vector<double> direction_;  // of each j, the third mean above
  double inverse_ = 0;
};

}  // namespace normscope
