#include "cli/compare_groups.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "cli/compare_labels.h"
#include "config/fields.h"
#include "config/names.h"
#include "core/error.h"

namespace normscope {
namespace {

// Beyond this many standard errors a mean of n differences is significant (two-sided, 5%): Student's t for
// n-1 degrees of freedom, from 1. Two standard errors, the usual rule, would call three seeds of pure chance
// different one time in five.
constexpr std::array t_quantile = {12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                   2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
constexpr double hardly = 2;          // standard errors: below them nothing can be told, whatever the seeds
constexpr std::size_t few_seeds = 5;  // up to here one seed of the other sign is a large share

// Seed, name and what is logged how often change neither weights nor losses.
bool changes_no_number(const std::string& key) { return find_field(key)->is_bookkeeping; }

bool same_but_for_seed(const RunConfig& a, const RunConfig& b) {
  const std::vector<Difference> all = keys_that_differ(a, b);
  return std::all_of(all.begin(), all.end(),
                     [](const Difference& d) { return d.key == "train.seed" || changes_no_number(d.key); });
}

}  // namespace

double Figure::mean() const {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

std::optional<double> Figure::spread() const {
  if (values.size() < 2) return std::nullopt;
  double squares = 0;
  for (const double v : values) squares += (v - mean()) * (v - mean());
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

Figure Group::figure(RunFigure member) const {
  const bool some_survived = with_status("diverged").size() < runs.size();
  Figure figure;
  for (const RunRecord& run : runs) {
    if (some_survived && run.status == "diverged") continue;
    if (run.*member) figure.values.push_back(*(run.*member));
  }
  return figure;
}

std::vector<const RunRecord*> Group::with_status(std::string_view status) const {
  std::vector<const RunRecord*> found;
  for (const RunRecord& run : runs) {
    if (run.status == status) found.push_back(&run);
  }
  return found;
}

std::string Group::placement() const {
  std::string names;
  for (const PlacementKind kind : model().norm_placement)
    names += (names.empty() ? "" : "+") + std::string(name_of(kind));
  return names;
}

std::string Group::status() const {
  std::map<std::string, int> counts;
  for (const RunRecord& run : runs) ++counts[run.status];
  if (counts.size() == 1) return counts.begin()->first;
  std::string all;
  for (const auto& [status, count] : counts) all += text(all.empty() ? "" : ", ", count, ' ', status);
  return all;
}

std::vector<Group> group_by_config(const std::vector<RunRecord>& runs) {
  std::vector<Group> groups;
  for (const RunRecord& run : runs) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return same_but_for_seed(group.config(), run.config);
    });
    if (found != groups.end()) {
      found->runs.push_back(run);
    } else {
      groups.push_back({"", {run}});
    }
  }
  set_labels(groups);
  return groups;
}

std::size_t PairedDifference::lower() const {
  return static_cast<std::size_t>(
      std::count_if(differences.values.begin(), differences.values.end(), [](double d) { return d < 0; }));
}

double PairedDifference::standard_error() const {
  return differences.spread().value_or(0) / std::sqrt(static_cast<double>(seeds()));
}

std::string PairedDifference::verdict() const {
  const double size = std::abs(differences.mean()), error = standard_error();
  const auto& all = differences.values;
  const bool none = std::all_of(all.begin(), all.end(), [](double d) { return d == 0; });
  if (none) return "the same losses";
  const auto is_higher = [](double d) { return d > 0; };
  const bool mixed = lower() > 0 && std::any_of(all.begin(), all.end(), is_higher);
  if (!(size >= hardly * error)) return "cannot be told apart";
  if (mixed && seeds() <= few_seeds) return "cannot be told apart: the sign changes from seed to seed";
  const double needed = t_quantile[std::min(seeds() - 2, t_quantile.size() - 1)];
  if (seeds() == 2) return "too few seeds to tell from chance";
  return size >= needed * error ? "a clear difference" : "perhaps a difference; too few seeds to tell";
}

PairedDifference paired_difference(const Group& a, const Group& b) {
  const auto losses = [](const Group& group) {
    std::map<Index, double> by_seed;  // of a seed that was run twice, the first run
    for (const RunRecord* run : group.with_status("done")) {
      if (run->final_val_loss) by_seed.emplace(run->config.train.seed, *run->final_val_loss);
    }
    return by_seed;
  };
  const std::map<Index, double> of_a = losses(a);
  PairedDifference pair;
  for (const auto& [seed, loss] : losses(b)) {
    if (const auto found = of_a.find(seed); found != of_a.end())
      pair.differences.values.push_back(loss - found->second);
  }
  return pair;
}

}  // namespace normscope
