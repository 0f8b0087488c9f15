// Differences between groups seed by seed, as lines of a table.
#include <algorithm>
#include <cmath>

#include "cli/compare_labels.h"
#include "cli/compare_remarks.h"
#include "cli/terminal.h"
#include "core/error.h"

namespace normscope {
namespace {

constexpr std::size_t many_comparisons = 5;

// A mean and its error, in digits that fit both: losses of runs on their way to diverge differ by thousands.
std::string difference_text(double mean, double error) {
  const bool fits = error >= 5e-4 || (error < 1e-9 && std::abs(mean) >= 5e-4);  // four digits show something
  const bool plain = fits && std::abs(mean) < 100;
  const auto number = [&](double v) { return plain ? fixed(v, 4) : significant_text(v); };
  return text(mean > 0 ? "+" : "", number(mean), " ± ", number(error));
}

std::string padded(const std::string& word, std::size_t width, bool to_the_right = false) {
  const std::string pad(width - std::min(width, shown_width(word)), ' ');
  return to_the_right ? pad + word : word + pad;
}

}  // namespace

bool Comparison::comparable(std::size_t a, std::size_t b) const {
  return other_text(a, b).empty() && other_vocabulary(a, b).empty() &&
         groups_[a].config().train.steps == groups_[b].config().train.steps;
}

std::vector<std::string> Comparison::paired_lines() const {
  const auto seeds_done = [](const Group& group) { return group.with_status("done").size(); };
  const auto base =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return seeds_done(g) > 1; });
  if (base == groups_.end()) return {};
  const auto first = static_cast<std::size_t>(base - groups_.begin());

  struct Row {
    std::string name, difference, words;
  };
  std::vector<Row> rows;
  std::size_t told = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (g == first || seeds_done(groups_[g]) < 2 || !comparable(first, g)) continue;
    const PairedDifference pair = paired_difference(*base, groups_[g]);
    if (pair.seeds() < 2) {
      rows.push_back({names_[g], "", pair.seeds() == 0 ? "no seed in common" : "one seed in common"});
      continue;
    }
    ++told;
    const bool lost = !base->with_status("diverged").empty() || !groups_[g].with_status("diverged").empty();
    rows.push_back({names_[g], difference_text(pair.differences.mean(), pair.standard_error()),
                    text("lower in ", pair.lower(), " of ", pair.seeds(), " shared seeds: ", pair.verdict(),
                         lost ? "; seeds that diverged are left out" : "")});
  }
  if (rows.empty()) return {};
  std::size_t name_width = 0, difference_width = 0;
  for (const Row& row : rows) {
    name_width = std::max(name_width, shown_width(row.name));
    difference_width = std::max(difference_width, shown_width(row.difference));
  }
  std::vector<std::string> lines = {
      text("final val minus that of ", names_[first], ", seed by seed, mean ± standard error:")};
  for (const Row& row : rows) {
    lines.push_back(text("  ", padded(row.name, name_width), "  ",
                         padded(row.difference, difference_width, true), "  ", row.words));
  }
  if (told >= many_comparisons) {
    lines.push_back(
        text("  ", told, " at once: where there is no difference, chance still calls one in 20 clear"));
  }
  return lines;
}

}  // namespace normscope
