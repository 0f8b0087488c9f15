// Statistics of a head's softmax as sums over queries, for the rows of heads.csv.
#pragma once

#include <algorithm>
#include <limits>

#include "core/types.h"

namespace normscope {

struct HeadStats {
  Index queries = 0;
  double max_logit = -std::numeric_limits<double>::infinity();  // of q·k/sqrt(D), masked entries excluded
  double entropy = 0;      // sum of the entropy of each query's weights before dropout (nats)
  double first_share = 0;  // sum of each query's weight before dropout on the first key

  void operator+=(const HeadStats& other) {
    queries += other.queries;
    max_logit = std::max(max_logit, other.max_logit);
    entropy += other.entropy;
    first_share += other.first_share;
  }
};

}  // namespace normscope
