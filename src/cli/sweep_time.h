// How long a sweep will still take.
#pragma once

#include <vector>

#include "core/types.h"

namespace normscope {

// A run as far as time goes.
struct RunTime {
  double expected = 0;  // seconds, by its arithmetic; all runs may be off by one factor
  double before = 0;    // the share of its steps that was done when this sweep began, 0..1
  double now = 0;       // the share that is done
};

// Seconds until all runs are done, `at_once` at a time, after `elapsed` seconds of work on them. The pace is
// what has been done since, running ones included, over the time it took; before anything is, what was
// expected.
double seconds_left(const std::vector<RunTime>& runs, double elapsed, Index at_once);

}  // namespace normscope
