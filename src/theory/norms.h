// What a norm does to the kernel of what it reads, and to that of a gradient on its way back.
#pragma once

#include <vector>

#include "model/config.h"
#include "theory/activations.h"
#include "theory/kernel.h"

namespace normscope {

// Features of the stream over the weights: Gaussian with this kernel and with a mean over the features, which
// sinusoids have and a centring norm takes away.
struct Signal {
  Kernel kernel;              // E x_t.x_s / C, the mean included
  std::vector<double> mean;   // (T)
  std::vector<double> share;  // (T) x = share * the token's embedding + what is independent of it
  double noise = 0;           // relative variance of the mean square from seed to seed; a rule of thumb
  double wobble = 0;          // over the width: relative variance of a token's mean square, over the weights
  double length = 0;          // the part of it that is the embedding's, not of the maps since
  double bent = 0;            // share of the mean square that is far from Gaussian, left by norms over tokens
  double excess = 0;          // excess kurtosis of a feature, left by pointwise norms

  double mean_square() const { return kernel.mean_square(); }
};

// A norm without statistics at its first values.
PointwiseFunction pointwise_norm(const ModelConfig& config);

// The response of N(phi), phi the FFN's hidden features of these arguments, N pointwise. `slope`: E
// N'(phi)^2.
Response normed_hidden(const ModelConfig& config, const Kernel& argument, double& slope);

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
    Kernel vectors = {};                              // (j, t): v_j
    std::vector<double> values = {}, direction = {};  // of each j, w_j and the third mean above
  };
  std::vector<Kernel> split(const Kernel& kernel) const;  // into those of the modes
  Kernel joined(const std::vector<Kernel>& modes) const;  // and back
  double sequences_ = 1;
  std::vector<Mode> modes_;
  double inverse_ = 0;
};

class NormMap {
 public:
  NormMap() = default;  // no norm: nothing changes
  // `x`, of `width` features, becomes N(x), N being the config's norm at its first gains. `fresh`: share of
  // the arriving gradient that comes by a branch. The rest has passed a norm like this one, as after a sum:
  // it has no mean, and none of it lies along x. `batch`: sequences over which a norm over a batch goes.
  NormMap(const ModelConfig& config, Signal& x, Index width, Index batch, double fresh = 1);

  bool is_identity() const { return rstd_.empty() && slope_.size == 0 && !tokens_.is_set(); }

  // The kernel of dx of that of dy.
  Kernel backward(const Kernel& gradient) const;

  double inverse = 1;  // mean over tokens of E 1/(V + eps); 1 without statistics

 private:
  std::vector<double> rstd_;  // norms over features: of each token
  double finite_ = 1;         // and what widths add to E dx.dx: see the constructor
  Kernel slope_;              // norms without statistics: E N'(x_t) N'(x_s)
  TokenNorm tokens_;          // norms over a sequence or a batch
};

}  // namespace normscope
