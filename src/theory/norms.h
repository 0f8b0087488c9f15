// What a norm does to the kernel of what it reads, and to that of a gradient on its way back.
#pragma once

#include <vector>

#include "model/config.h"
#include "theory/activations.h"
#include "theory/kernel.h"
#include "theory/token_norm.h"

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

class NormMap {
 public:
  NormMap() = default;  // no norm: nothing changes
  // `x`, of `width` features, becomes N(x), N being the config's norm at its first gains. `fresh`: share of
  // the arriving gradient that comes by a branch. The rest has passed a norm like this one, as after a sum:
  // it has no mean, and none of it lies along x. `batch`: sequences over which a norm over a batch goes.
  NormMap(const ModelConfig& config, Signal& x, Index width, Index batch, double fresh = 1);

  bool is_identity() const { return rstd_.empty() && slope_.size == 0 && !tokens_.is_set(); }

  double inverse() const;  // mean over tokens of E 1/(V + eps); 1 without statistics

  // The kernel of dx of that of dy.
  Kernel backward(const Kernel& gradient) const;

 private:
  std::vector<double> rstd_;  // norms over features: of each token
  double finite_ = 1;         // and what widths add to E dx.dx: see the constructor
  Kernel slope_;              // norms without statistics: E N'(x_t) N'(x_s)
  TokenNorm tokens_;          // norms over a sequence or a batch
};

}  // namespace normscope
