// What a head's softmax tells of it: sums over queries, from which the rows of heads.csv come.
#pragma once

#include <algorithm>
#include <limits>

#include "core/types.h"

namespace normscope {

struct HeadStats {
  Index queries = 0;
  double max_logit = -std::numeric_limits<double>::infinity();  // of q·k/sqrt(D) where the mask lets it be
  double entropy = 0;      // of each query's weights (nats), before dropout as below; summed
  double first_share = 0;  // of each query's weights on the first key, summed

  void operator+=(const HeadStats& other) {
    queries += other.queries;
    max_logit = std::max(max_logit, other.max_logit);
    entropy += other.entropy;
    first_share += other.first_share;
  }
};

}  // namespace normscope
