// Causal attention with fresh weights, on kernels. Scores of one query with its keys are Gaussian, so weights
// A of two queries t, t' have second moments
//   M^{tt'}_{ss'} = E A_ts A_t's'  proportional to  exp(sqrt(gamma_t gamma_t') beta K_tt' K~_ss'),  sum 1,
// with beta = C Var(q) C Var(k) (1 with qk_norm, whose queries and keys have mean square 1), K~ the keys'
// kernel centred over s <= t, s' <= t' (a common part of the scores cancels), and gamma such that sum_s
// M^{tt}_ss is the exact participation (softmax_moments.h). Rope multiplies the scores' covariance by the
// mean over its frequencies of cos((s-t) - (s'-t')).
#pragma once

#include <vector>

#include "theory/kernel.h"

namespace normscope {

struct AttentionScale {
  double query = 1, value = 1;               // C Var(q) = C Var(k), C Var(v)
  bool qk_norm = false, value_norm = false;  // RMSNorm of each head: q and k, v
  bool rope = false;
  Index head_dim = 1;
  // Cells of neighbouring queries share the exponents of their last; a cell is this much longer than the one
  // before it. 1: each query has its own, and the cost is T^4.
  double cell_growth = 1.4;
  bool finite_width = true;  // of a head's norms
  Index sequences = 1;       // of the kernels: 1 or 2
};

class AttentionMap {
 public:
  AttentionMap() = default;
  AttentionMap(Kernel in, const AttentionScale& scale);

  Kernel forward();                               // of the heads' outputs
  Kernel backward(const Kernel& gradient) const;  // of the gradient of what attention reads, through v, q, k

  double score_std = 0;  // of the last query's scores about their mean
  double entropy = 0;    // nats, mean over the queries
  // After forward(): the mean square by which outputs change, to first order, where scores have noise of
  // their own covariance, E |do_t|^2 = f beta K_tt sum_ss' M K~^v_ss' K~^k_ss'; the gradient of queries has
  // it too.
  double score_response = 0;

 private:
  struct Pass;  // one pair of cells of queries
  Kernel mirrored(Kernel kernel) const;
  template <class Use>
  void each_pass(Use use) const;
  double turn(Index offset) const { return turn_.empty() ? 1 : turn_[offset + 2 * length_]; }

  Kernel in_, key_, value_;  // K; of keys, over `query` but with qk_norm; of values
  AttentionScale scale_;
  Index length_ = 0;  // T
  double beta_ = 0;
  std::vector<double> gamma_, slope_, variance_;  // (T): of each query gamma, sqrt(f), and of its scores
  std::vector<Index> cells_;                      // first query of each cell, and T
  std::vector<double> turn_;                      // rope: mean of cos at offsets -2T..2T
};

}  // namespace normscope
