// A figure over several runs: its mean and spread, how they are printed, and what a mean difference is worth.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "run/record.h"

namespace normscope {

struct Metric {
  std::vector<double> values;  // of the runs that have one

  double mean() const;                   // needs one value
  std::optional<double> stddev() const;  // of the sample; needs two values
  double standard_error() const;         // of the mean; needs two values
};

// "2.5123 ± 0.0312", "-": losses with as many digits after the point as the spread leaves, ratios with three
// significant ones, a speed without its spread, which says what else ran on the machine.
std::string metric_text(const Metric& metric, Digits digits);

// "-0.0614 ± 0.0386": a mean of differences and its standard error, in digits that fit both.
std::string difference_text(const Metric& differences);

// What can honestly be said of differences seed by seed.
std::string verdict_on(const Metric& differences);

// Beyond it lies Student's t with so many degrees of freedom one time in twenty, on either side of 0. As many
// standard errors off 0, a mean of n values is significant at 5%, with n-1 degrees.
double t_quantile(Index degrees);

}  // namespace normscope
