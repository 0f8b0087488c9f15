// Kernels over the rows of a matrix: norms of rows (layer, RMS, group norm) and of columns (batch, instance
// norm), pointwise functions in their place (DyT, Derf), cross-entropy.
//
// Both families of norms compute
//   y = gain * x̂ + bias,  x̂ = (x - mean) * rstd,  rstd = 1/sqrt(var + eps), or 1/(sqrt(var) + eps)
// with the biased variance, and backwards, with g = gain*dy and means over what is normalised together,
//   dx = rstd (g - mean(g) - x̂ mean(g x̂)),  dgain = sum over rows of dy x̂,  dbias = sum over rows of dy;
// RMS norm has neither mean(x) nor mean(g); with eps outside the root the term of x̂ is times (σ + eps)/σ.
#pragma once

#include "kernels/softmax.h"

namespace normscope {

// Layer norm (Ba et al. 2016) of each row; with `centred` false RMS norm (Zhang & Sennrich 2019), which
// leaves out the mean; with several groups group norm (Wu & He 2018), which normalises equal parts of a row.
template <class Real>
struct LayerNorm {
  Index groups = 1;  // divides cols
  bool centred = true;
  Real eps = 0;
  bool eps_outside = false;  // outside the root
  bool shared_gain = false;  // gain and bias have cols/groups numbers, the same for each group
  bool detached = false;     // the backward takes mean and rstd for constants: dx = rstd gain dy

  Index rows = 0, cols = 0;
  Index stride = 0;                             // between rows of x, y, dx, dy; at least cols
  const Real* x = nullptr;                      // (rows, cols)
  const Real *gain = nullptr, *bias = nullptr;  // (cols), or null
  Real *mean = nullptr, *rstd = nullptr;        // (rows, groups): left by the forward for the backward
};

// Batch norm (Ioffe & Szegedy 2015) normalises each feature over all rows; instance norm (Ulyanov et al.
// 2016) over the rows of a sequence. In a causal model both leak: an output depends on later characters.
template <class Real>
struct BatchNorm {
  Index group_rows = 0;  // rows that share a mean and a variance; divides rows
  Real eps = 0;
  bool eps_outside = false;

  Index rows = 0, cols = 0;
  const Real* x = nullptr;                                     // (rows, cols)
  const Real *gain = nullptr, *bias = nullptr;                 // (cols), or null
  Real *mean = nullptr, *variance = nullptr, *rstd = nullptr;  // (groups, cols): left by the forward
};

// A pointwise function in the place of a norm: y = gain * f(alpha x + shift) + bias. DyT: f = tanh (Zhu et
// al. 2025, arXiv 2503.10622); Derf: f = erf (Chen et al. 2025, arXiv 2512.10938, equation 10). With g = gain
// dy f'(alpha x + shift): dx = alpha g, dalpha = sum g x, dshift = sum g, dgain = sum dy f, dbias = sum dy.
enum class PointwiseFn { tanh, erf };
template <class Real>
struct PointwiseNorm {
  Index rows = 0, cols = 0;
  Real alpha = 0;
  const Real* x = nullptr;                      // (rows, cols)
  const Real *gain = nullptr, *bias = nullptr;  // (cols), or null
  PointwiseFn function = PointwiseFn::tanh;
  Real shift = 0;
};

// A norm's incoming gradient dy and the destinations of its outgoing ones.
template <class Real>
struct NormGradients {
  const Real* dy = nullptr;
  Real* dx = nullptr;
  Real beta = 0;                              // dx = beta*dx + ...; dx is not read where beta is 0
  Real *dgain = nullptr, *dbias = nullptr;    // (cols), or null; added to
  Real *dalpha = nullptr, *dshift = nullptr;  // one number each, or null; added to
};

template <class Real>
void layer_norm_forward(const LayerNorm<Real>& norm, Real* y);
template <class Real>
void layer_norm_backward(const LayerNorm<Real>& norm, const NormGradients<Real>& gradients);

template <class Real>
void batch_norm_forward(const BatchNorm<Real>& norm, Real* y);
template <class Real>
void batch_norm_backward(const BatchNorm<Real>& norm, const NormGradients<Real>& gradients);
// Batch norm in eval mode: y by the given mean and variance, (cols) each.
template <class Real>
void batch_norm_inference(const BatchNorm<Real>& norm, const Real* mean, const Real* variance, Real* y);

template <class Real>
void pointwise_norm_forward(const PointwiseNorm<Real>& norm, Real* y);
template <class Real>
void pointwise_norm_backward(const PointwiseNorm<Real>& norm, const NormGradients<Real>& gradients);

// loss[i] = logsumexp(row i) - row[target], nats.
template <class Real>
struct CrossEntropy {
  Index rows = 0, classes = 0;
  const Real* logits = nullptr;  // (rows, classes)
  const std::int32_t* targets = nullptr;
  SoftmaxStats<Real> stats = {};  // (rows): left by the forward for the backward
};

template <class Real>
void cross_entropy_forward(const CrossEntropy<Real>& ce, Real* loss);
// dlogits = beta*dlogits + (softmax(row) - onehot(target)) * scale.
template <class Real>
void cross_entropy_backward(const CrossEntropy<Real>& ce, Real scale, Real* dlogits, Real beta);

}  // namespace normscope
