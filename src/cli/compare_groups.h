// What `compare` knows of runs: those of one config together, their figures, what sets two configs apart.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/dump.h"
#include "train/run_record.h"

namespace normscope {

// What some runs say of one figure; runs that say nothing are left out.
struct Figure {
  std::vector<double> values;

  bool known() const { return !values.empty(); }
  double mean() const;
  std::optional<double> spread() const;  // sample standard deviation; needs two values
};

using RunFigure = std::optional<double> RunRecord::*;

// Runs whose configs differ in nothing but seed and what changes no number.
struct Group {
  std::string label;  // unique among the groups; as folders are named, so not yet printable
  std::vector<RunRecord> runs;

  const RunConfig& config() const { return runs[0].config; }
  const ModelConfig& model() const { return config().model; }
  // Of the runs that did not diverge, if there are such: the last loss of one that did says nothing in a
  // mean.
  Figure figure(RunFigure member) const;
  std::vector<const RunRecord*> with_status(std::string_view status) const;
  std::string placement() const;  // pre, or pre+post+... of a list
  std::string status() const;     // done, or "2 done, 1 diverged"
};

// In the order in which their first runs come, labelled.
std::vector<Group> group_by_config(const std::vector<RunRecord>& runs);

// Final validation losses of two groups, seed by seed: b's minus a's, of every seed that is done in both.
// What a seed decides (first weights, batches) is the same on both sides and falls out of the difference.
struct PairedDifference {
  Figure differences;

  std::size_t seeds() const { return differences.values.size(); }
  std::size_t lower() const;      // seeds in which b is lower
  double standard_error() const;  // of the mean; needs two seeds
  std::string verdict() const;    // what can honestly be said; needs two seeds
};
PairedDifference paired_difference(const Group& a, const Group& b);

// The keys that set two configs apart, seed and name aside.
struct Contrast {
  std::vector<Difference> chosen;    // each a cause of its own
  std::vector<Difference> followed;  // what a chosen one brings along, such as the placement's final norm
  std::vector<Difference> idle;      // change no number: logging, threads, keys that this config does not use
};
Contrast contrast_of(const RunConfig& a, const RunConfig& b);

}  // namespace normscope
