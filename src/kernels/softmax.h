// What is kept of the softmax of a row, so that it can be computed again.
#pragma once

#include "core/types.h"

namespace normscope {

// For each row x: m = max x_i and l = sum exp(x_i - m), so that softmax(x)_i = exp(x_i - m) / l. The two are
// not joined to one log-sum-exp: rounding m + log(l) would multiply every weight by up to 1 ± ulp(m)/2, and
// the gradients of a row would no longer cancel.
template <class Real>
struct SoftmaxStats {
  Real *max, *sum;  // (rows) each

  SoftmaxStats from(Index row) const { return {max + row, sum + row}; }
};

}  // namespace normscope
