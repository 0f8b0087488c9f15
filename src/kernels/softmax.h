// Statistics of a row's softmax, from which it is computed again; a tile of attention's scores.
#pragma once

#include "core/types.h"

namespace normscope {

// Maximum m = max x_i and sum l = sum exp(x_i - m) of each row x: softmax(x)_i = exp(x_i - m) / l. They are
// not joined to one log-sum-exp: rounding m + log(l) would scale all weights of the row by one error, up to
// 1 ± ulp(m)/2, so that the row's gradients would no longer sum to 0.
template <class Real>
struct SoftmaxStats {
  Real *max, *sum;  // (rows) each

  SoftmaxStats from(Index row) const { return {max + row, sum + row}; }
};

// A tile of attention's transposed scores: (n_keys + 1, stride), query i in column i, which sees the keys
// before first_visible + i. Masked entries are not read, and become 0. Rows have room for whole vectors of
// queries.
struct CausalTile {
  Index n_queries, first_visible, n_keys, stride;
  const float* dropout_mask;  // 0 or 1/(1-p), laid out as the scores; or null
  SoftmaxStats<float> stats;  // (n_queries)
  // (n_queries) each, or null: sum_j P_j (S_j - max S) and P_0, from which HeadStats follow.
  float *mean_score = nullptr, *first_weight = nullptr;
};

}  // namespace normscope
