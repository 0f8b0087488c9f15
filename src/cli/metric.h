// A figure of several runs: mean and spread, their text, and the significance of a mean difference.
#pragma once

#include "run/record.h"

namespace normscope {

struct Metric {
  std::vector<double> values;  // of the runs that have one

  double mean() const;            // NaN of no value
  double stddev() const;          // of the sample; NaN of fewer than two values
  double standard_error() const;  // of the mean; NaN of fewer than two values
};

// "2.550 ± 0.071", "2.5123", "-". A speed has no deviation, which would describe the machine's other load.
std::string metric_text(const Metric& metric, Digits digits);

// "-0.061 ± 0.039": two significant digits of the error, and as many of the mean after the point.
std::string with_error(double mean, double error);

// The verdict on differences seed by seed, by Student's t at 5%.
std::string verdict_on(const Metric& differences);

// The probability that Student's t with this many degrees of freedom lies further from 0 than `t`.
double two_sided_p(double t, Index degrees);

}  // namespace normscope
