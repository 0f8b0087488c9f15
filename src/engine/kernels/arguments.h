// Arguments and results of the kernels: norms, softmax, statistics.
#pragma once

#include "core/types.h"

namespace normscope {

// --- norms ---
//
// Norms of rows and of columns compute
//   y = gain * x̂ + bias,  x̂ = (x - mean) * rstd,  rstd = 1/sqrt(var + eps), or 1/(sqrt(var) + eps)
// with the biased variance, and backwards, with g = gain*dy and means over what is normalised together,
//   dx = rstd (g - mean(g) - x̂ mean(g x̂)),  dgain = sum over rows of dy x̂,  dbias = sum over rows of dy;
// RMS norm has neither mean(x) nor mean(g); with eps outside the root the term of x̂ is times (σ + eps)/σ.

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
  const Real* x = nullptr;                      // (rows, cols)
  const Real *gain = nullptr, *bias = nullptr;  // (cols), or null
  Real *mean = nullptr, *rstd = nullptr;        // (groups, cols): left by the forward for the backward
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

// --- softmax ---

// Maximum m = max x_i and sum l = sum exp(x_i - m) of each row x: softmax(x)_i = exp(x_i - m) / l. They are
// not joined to one log-sum-exp: rounding m + log(l) would scale all weights of the row by one error, up to
// 1 ± ulp(m)/2, so that the row's gradients would no longer sum to 0.
template <class Real>
struct SoftmaxStats {
  Real *max, *sum;  // (rows) each

  SoftmaxStats from(Index row) const { return {max + row, sum + row}; }
};

// A tile of attention's transposed scores: (n_keys, n_queries), a row for each key, a column for each query.
// Query i sees the keys before first_visible + i; the scores of later ones are not read, and become 0. Rows
// are `stride` numbers apart, which is room for whole vectors of queries.
struct CausalTile {
  Index n_queries, first_visible, n_keys, stride;
  const float* dropout_mask;  // 0 or 1/(1-p), laid out as the scores; or null
  SoftmaxStats<float> stats;  // (n_queries)
  bool in_bf16 = false;       // P∘mask and dS are rounded to bf16
  // (n_queries) each, or null: sum_j P_j (S_j - max S) and P_0, from which HeadStats follow.
  float *mean_score = nullptr, *first_weight = nullptr;
};

// The cross-entropy of rows of logits.
template <class Real>
struct CrossEntropy {
  Index rows = 0, classes = 0;
  const Real* logits = nullptr;  // (rows, classes)
  const std::int32_t* targets = nullptr;
  SoftmaxStats<Real> stats = {};  // (rows): left by the forward for the backward
};

// --- elementwise functions, statistics ---

// Statistics of a tensor for layers.csv.
struct TensorStats {
  double sum = 0, sum_squares = 0;  // squares of floats neither underflow nor overflow
  double abs_max = 0;               // NaN is left out
  Index nonfinite = 0;
  Index count = 0;

  void operator+=(const TensorStats& other) {
    sum += other.sum;
    sum_squares += other.sum_squares;
    abs_max = abs_max < other.abs_max ? other.abs_max : abs_max;
    nonfinite += other.nonfinite;
    count += other.count;
  }
};

// Sums of squares over a tensor: of its weights before an update, and of their change. Always measured, so
// that a run computes the same bits whether it logs or not.
struct WeightChange {
  double before = 0, change = 0;

  void operator+=(const WeightChange& other) { before += other.before, change += other.change; }
};

}  // namespace normscope
