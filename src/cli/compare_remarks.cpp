#include <algorithm>
#include <cmath>

#include "cli/compare.h"
#include "cli/terminal.h"
#include "core/text.h"
#include "io/utf8.h"

namespace normscope {
using nlohmann::ordered_json;
namespace {

constexpr std::size_t many_comparisons = 5;
constexpr double near_level = 0.08;  // nats from the unigram level: only letter counts are learnt
constexpr std::size_t max_names = 6, max_story = 400;  // bytes; a summary may hold anything

// "a, b, c", "a, b, c, d, e and 3 more".
std::string enumerated(std::vector<std::string> names) {
  const std::size_t count = names.size();
  if (count <= max_names) return join(names);
  names.resize(max_names - 1);
  return text(join(names), " and ", count - names.size(), " more");
}

// Sentences, each once, with the groups and the number of seeds of which they are true.
class Remarks {
 public:
  void add(const char* kind, const Group& group, std::size_t seeds, const std::string& text) {
    auto remark = std::ranges::find_if(all_, [&](auto& r) { return r.kind == kind && r.text == text; });
    if (remark == all_.end()) remark = all_.insert(remark, {kind, text, {}});
    remark->seeds[&group] += seeds;
  }

  // `total`: the number of groups. A sentence about all of more than two begins with "all".
  ordered_json json(std::size_t total) const {
    ordered_json all = ordered_json::array();
    for (const auto& [kind, sentence, groups] : all_) {
      std::vector<std::string> labels, names;
      for (const auto& [group, seeds] : groups) {
        labels.push_back(group->label);
        const std::string some = text(" (", seeds, " of ", group->runs.size(), " seeds)");
        names.push_back(group->label + (seeds == group->runs.size() ? "" : some));
      }
      const bool is_of_all = labels == names && names.size() == total && total > 2;
      all.push_back(
          {{"text", (is_of_all ? "all" : enumerated(names)) + sentence}, {"kind", kind}, {"groups", labels}});
    }
    return all;
  }

 private:
  struct Remark {
    std::string kind, text;
    std::map<const Group*, std::size_t> seeds;
  };
  std::vector<Remark> all_;
};

bool scales_init(const Group& group) {
  const auto rows = sublayer_rows(group.config().model);
  return std::ranges::any_of(rows, [](const Placement* row) { return !row->init_gain.is_one(); });
}

// The differences between a group and the base, and whether they are one cause. Values in the label are not
// repeated.
std::string difference_text(const Group& base, const Group& group) {
  std::vector<std::string> causes, derived;
  bool chooses_init = false, other_init = scales_init(base) != scales_init(group);
  for (const KeyChange& change : config_diff(base, group)) {
    const bool is_labelled = group.labelled_keys.contains(change.field->key);
    (change.is_derived ? derived : causes)
        .push_back(change.field->key + (is_labelled ? "" : " " + change.values));
    if (change.field->key.starts_with("model.init.")) (change.is_derived ? other_init : chooses_init) = true;
  }
  std::string words = causes.empty() ? "the same config" : join(causes);
  if (!derived.empty()) words += "; with that comes " + join(derived);
  if (causes.size() > 1)
    return text(words, "; ", causes.size(),
                " choices at once: which is the cause cannot be told from these two");
  return words +
         (other_init && !chooses_init ? "; it starts from other weights too, which may be the cause" : "");
}

// The keys that make the losses of two groups incomparable.
std::string incomparable_keys(const Group& a, const Group& b) {
  std::vector<std::string> keys;
  for (const auto& [field, values, is_derived] : config_diff(a, b)) {
    if (field->key.starts_with("data.") || field->key == "train.steps") keys.push_back(field->key);
  }
  return join(keys);
}

// Remarks on one run: its status, its last losses, its model.
void add_remarks_on_run(Remarks& remarks, const Group& group, const RunRecord& run) {
  const auto add = [&](const char* kind, const auto&... parts) {
    remarks.add(kind, group, 1, text(": ", parts...));
  };
  const std::optional<double> loss = run.final_val_loss ? run.final_val_loss : run.final_train_loss;
  if (run.status == status_diverged) {
    add("diverged", "diverged at step ", run.first_nonfinite ? run.first_nonfinite->step : run.steps + 1,
        group.count(status_diverged) < group.runs.size() ? "; figures are of the other seeds, and so biased"
                                                         : "",
        run.story.empty() ? "" : "; ", escape_controls(run.story.substr(0, max_story)));
  } else if (run.status == status_done && loss) {
    if (run.vocab > 0 && *loss > std::log(static_cast<double>(run.vocab)))
      add("exploded", "the loss ends above ln V: worse than guessing each character with equal chance");
    if (run.unigram && std::abs(*loss - *run.unigram) < near_level)
      add("unigram", "the loss ends at the unigram level (", fixed(*run.unigram, 2),
          " nats): how often each character occurs has been learnt, and nothing of their order");
  } else if (run.status != status_done && run.status != status_probe) {
    add("unfinished", escape_controls(run.status), " at step ", grouped(run.steps), " of ",
        grouped(run.config.train.steps), "; figures of a run that is not done are no result");
  }
  if (branches_too_small(run.config.model, run.branch_share.value_or(1)))
    add("small_branch", "at the start a sublayer adds so little to the stream that the norms' place can ",
        "hardly matter");
  // Statistics over positions contain later tokens. batchnorm's are constants in evaluation.
  if (const NormRow& norm = norm_row(run.config.model.norm); norm.non_causal())
    add("leaks", norm.name, " averages over positions, so a prediction knows of later characters",
        norm.has_running ? " in training; its training loss is not that of a causal model"
                         : "; its losses are not those of a causal model");
}

std::map<Index, double> losses_by_seed(const Group& group) {
  std::map<Index, double> losses;
  for (const RunRecord& run : group.runs) {
    if (run.status == status_done && run.final_val_loss) losses[run.config.train.seed] = *run.final_val_loss;
  }
  return losses;
}

}  // namespace

ordered_json pairs_with_base(const std::vector<Group>& groups, const Group& base) {
  const std::map<Index, double> of_base = losses_by_seed(base);
  ordered_json pairs = ordered_json::array();
  for (const Group& group : groups) {
    Metric differences;
    for (const auto& [seed, loss] : losses_by_seed(group)) {
      if (of_base.contains(seed)) differences.values.push_back(loss - of_base.at(seed));
    }
    const std::size_t seeds = differences.values.size();
    if (&group == &base || seeds < 2 || !incomparable_keys(base, group).empty()) continue;
    const double mean = differences.mean(), error = differences.standard_error();
    const auto lower = std::ranges::count_if(differences.values, [](double d) { return d < 0; });
    const bool lost = base.count(status_diverged) + group.count(status_diverged) > 0;
    const std::string verdict = verdict_on(differences);
    pairs.push_back({{"group", group.label},
                     {"base", base.label},
                     {"mean", mean},
                     {"standard_error", error},
                     {"n", seeds},
                     {"verdict", verdict},
                     {"difference", (mean > 0 ? "+" : "") + with_error(mean, error)},
                     {"text", text("lower in ", lower, " of ", seeds, " shared seeds",
                                   lost ? " that did not diverge: " : ": ", verdict)}});
  }
  return pairs;
}

ordered_json remarks_on(const std::vector<Group>& groups, const Group& base, std::size_t pairs) {
  Remarks remarks;
  for (const Group& group : groups) {
    if (&group == &base) continue;
    remarks.add("differs", group, group.runs.size(),
                text(" against ", base.label, ": ", difference_text(base, group)));
    if (const std::string keys = incomparable_keys(base, group); !keys.empty())
      remarks.add("not_comparable", group, group.runs.size(),
                  text(": losses are not comparable with those of ", base.label, ": other ", keys));
  }
  for (const Group& group : groups) {
    for (const RunRecord& run : group.runs) add_remarks_on_run(remarks, group, run);
  }
  if (pairs >= many_comparisons)
    remarks.add(
        "many_comparisons", base, base.runs.size(),
        text(": ", pairs, " configs are compared with it: where there is no difference, chance still ",
             "calls one in 20 clear"));
  for (const Group& group : groups) {
    if (groups.size() > 1 && group.runs.size() == 1)
      remarks.add(
          "one_seed", group, 1,
          ": one seed a config: small differences may be chance; more seeds (--set train.seed=2 --out ...) "
          "become mean ± spread here");
  }
  return remarks.json(groups.size());
}

}  // namespace normscope
