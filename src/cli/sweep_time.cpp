#include "cli/sweep_time.h"

#include <algorithm>

namespace normscope {

double seconds_left(const std::vector<RunTime>& runs, double elapsed, Index at_once) {
  double done = 0, left = 0, longest = 0;
  for (const RunTime& run : runs) {
    done += run.expected * (run.now - run.before);
    left += run.expected * (1 - run.now);
    longest = std::max(longest, run.expected * (1 - run.now));
  }
  const double lanes = static_cast<double>(at_once);
  const double pace = done > 0 ? elapsed / done : 1 / lanes;
  return pace * std::max(left, lanes * longest);  // the last run has no other beside it
}

}  // namespace normscope
