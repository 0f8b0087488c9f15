#include "cli/compare_remarks.h"

#include <algorithm>
#include <cmath>

#include "cli/terminal.h"
#include "core/error.h"
#include "core/text.h"
#include "io/utf8.h"
#include "model/norms.h"
#include "model/placement.h"
#include "run/figures.h"

namespace normscope {
using nlohmann::ordered_json;
namespace {

constexpr std::ptrdiff_t many_comparisons = 5;
constexpr double near_level = 0.08;  // nats: this near to the unigram level, only letter counts are learnt
constexpr std::size_t max_names = 6, longest_story = 400;  // bytes; a summary may hold anything

// "a", "a and b", "a, b and c", "a, b, c, d, e and 3 more".
std::string enumerated(std::vector<std::string> words) {
  if (words.size() < 2) return join(words);
  std::string last = words.back();
  words.pop_back();
  if (words.size() >= max_names) {
    last = text(words.size() + 2 - max_names, " more");
    words.resize(max_names - 1);
  }
  return join(words) + " and " + last;
}

// Sentences, each with the groups of which it is true.
class Sentences {
 public:
  // "NAME (NOTE)PARTS", once for all groups of which the parts are said. An empty note stands for none;
  // without a name where the kind is about the whole comparison.
  template <class... Parts>
  void add(const char* kind, const Group& group, const std::string& note, const Parts&... parts) {
    const std::string said = text(parts...);
    std::size_t i = 0;
    while (i < all_.size() && (all_[i]["kind"] != kind || all_[i]["text"] != said)) ++i;
    if (i == all_.size()) all_.push_back({{"text", said}, {"kind", kind}, {"groups", ordered_json::array()}});
    all_[i]["groups"].push_back(group.label);
    names_.resize(all_.size());
    names_[i].push_back(group.label + (note.empty() ? "" : " (" + note + ")"));
  }

  ordered_json json() && {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i]["kind"] == "one_seed" || all_[i]["kind"] == "many_comparisons") continue;
      all_[i]["text"] = enumerated(names_[i]) + all_[i]["text"].get<std::string>();
    }
    return std::move(all_);
  }

 private:
  ordered_json all_ = ordered_json::array();
  std::vector<std::vector<std::string>> names_;
};

std::string keys_text(const std::vector<KeyChange>& changes, bool with_values) {
  std::vector<std::string> words;
  for (const KeyChange& c : changes) words.push_back(c.field->key + (with_values ? " " + c.values : ""));
  return join(words);
}

bool is_init(const KeyChange& change) { return change.field->key.starts_with("model.init."); }

bool scales_init(const Group& group) {
  const std::vector<const Placement*> rows = placements_of(group.config().model);
  return std::any_of(rows.begin(), rows.end(), [](const Placement* row) { return row->init_gain(2) != 1; });
}

Index vocab_of(const Group& group) {  // 0: not known
  Index vocab = 0;
  for (const RunRecord& run : group.runs) vocab = std::max(vocab, run.vocab);
  return vocab;
}

// Why losses of two groups may not be set beside each other; empty if they may.
std::vector<std::string> incomparable(const Grouping& grouping, const Group& a, const Group& b) {
  const auto differs = [&](const char* name) {
    const auto in_a = a.keys.find(find_field(name)), in_b = b.keys.find(find_field(name));
    const bool there = in_a != a.keys.end();
    return there != (in_b != b.keys.end()) || (there && in_a->second != in_b->second);
  };
  const auto is_unread = [&](const Group& group) {
    return grouping.unread_texts.contains(find_field("data.path")->get(group.config()).dump());
  };
  std::vector<std::string> reasons;
  if (differs("data.path") && (is_unread(a) || is_unread(b))) {
    reasons.emplace_back("texts in other files, which cannot be read now");
  } else if (differs("data.path")) {
    reasons.emplace_back("another text");
  }
  if (differs("data.val_path") || differs("data.val_fraction"))
    reasons.emplace_back("another validation split");
  if (const Index one = vocab_of(a), other = vocab_of(b); one > 0 && other > 0 && one != other)
    reasons.push_back(text("a vocabulary of ", other, " characters, not ", one));
  if (differs("train.steps"))
    reasons.push_back(text(grouped(b.config().train.steps), " steps, not ", grouped(a.config().train.steps)));
  return reasons;
}

// What sets a group apart from the base, and whether that is one cause.
void say_differences(Sentences& say, const Group& base, const Group& group, bool with_values) {
  const ConfigDiff diff = config_diff(base, group);
  const auto& causes = diff.independent;
  std::string more;
  if (!diff.derived.empty()) more += "; with that comes " + keys_text(diff.derived, with_values);
  if (causes.size() > 1)
    more += text("; ", causes.size(),
                 " choices at once: which of them is the cause cannot be told from these two");
  // A placement may bring an initialisation of its own; a loss does not say which of the two did it.
  std::vector<KeyChange> init;
  std::copy_if(diff.derived.begin(), diff.derived.end(), std::back_inserter(init), is_init);
  std::string weights = keys_text(init, with_values);
  if (scales_init(base) != scales_init(group))
    weights += (weights.empty() ? "" : ", ") + std::string("deepnorm's factor");
  if (!weights.empty() && causes.size() == 1 && !is_init(causes[0]))
    more += "; so it starts from other weights (" + weights + "), which may be the cause as well";
  say.add("differs", group, "", " against ", base.label, ": ",
          causes.empty() ? "the same config" : keys_text(causes, with_values), more);
}

// "2 of 3 seeds"; empty if it is all of them.
std::string share_text(std::size_t count, const Group& group) {
  return count == group.runs.size() ? "" : text(count, " of ", group.runs.size(), " seeds");
}

// Runs that are not done, and what that does to a mean.
void say_ended_early(Sentences& say, const Group& group) {
  std::vector<std::string> lost, unfinished;
  std::string story;
  for (const RunRecord& run : group.runs) {
    const std::string who = group.runs.size() > 1 ? text("seed ", run.config.train.seed, " ") : "";
    if (run.status == "diverged") {
      lost.push_back(text(who, "at step ", run.first_nonfinite ? run.first_nonfinite->step : run.steps + 1));
      if (story.empty() && !run.story.empty())
        story = "; " + who + escape_controls(run.story.substr(0, longest_story));
    } else if (run.status != "done" && run.status != "probe") {
      unfinished.push_back(text(who, escape_controls(run.status), " at step ", grouped(run.steps), " of ",
                                grouped(run.config.train.steps)));
    }
  }
  const char* biased = lost.size() < group.runs.size()
                           ? "; its figures are of the seeds that survived only, and so biased"
                           : "";
  if (!lost.empty())
    say.add("diverged", group, share_text(lost.size(), group),
            group.runs.size() > 1 ? ": diverged in " : ": diverged ", enumerated(lost), biased, story);
  if (!unfinished.empty())
    say.add("unfinished", group, "", ": ", enumerated(unfinished),
            "; figures of a run that is not done are no result");
}

// What the last losses say by themselves.
void say_losses(Sentences& say, const Group& group) {
  const Index vocab = vocab_of(group);
  const double guessing = std::log(static_cast<double>(vocab));
  std::size_t exploded = 0, at_unigram = 0;
  for (const RunRecord* run : group.with_status("done")) {
    const auto loss = run->final_val_loss ? run->final_val_loss : run->final_train_loss;
    exploded += loss && vocab > 0 && *loss > guessing;
    at_unigram +=
        run->final_val_loss && run->unigram && std::abs(*run->final_val_loss - *run->unigram) < near_level;
  }
  if (exploded > 0)
    say.add("exploded", group, share_text(exploded, group),
            ": the loss ends above ln V = ", fixed(guessing, 2),
            " nats: worse than guessing each character with equal chance");
  if (at_unigram > 0)
    say.add("unigram", group, share_text(at_unigram, group), ": at the unigram level (",
            fixed(group.metric(&RunRecord::unigram).mean(), 2),
            " nats): how often each character occurs has been learnt, and nothing of their order");
}

// What follows from the model, whatever the losses.
void say_model(Sentences& say, const Group& group) {
  const NormRow& norm = norm_row(group.config().model.norm);
  const Metric share = group.metric(&RunRecord::branch_share);
  if (!share.values.empty() && branches_too_small(group.config().model, share.mean())) {
    say.add(
        "small_branch", group, fixed(100 * share.mean(), 1) + "%",
        ": at the start a branch is so small a part of the stream it is added to that the norms' place can "
        "hardly matter");
  }
  // Statistics over positions tell a token of what comes after it. batchnorm's are fixed in evaluation.
  if (norm.leaks)
    say.add("leaks", group, "", ": ", norm.name,
            " averages over positions, so a prediction knows of later characters",
            norm.has_running ? " in training; its training loss is not that of a causal model"
                             : "; its losses are not those of a causal model");
}

std::map<Index, double> losses_by_seed(const Group& group) {
  std::map<Index, double> losses;
  for (const RunRecord* run : group.with_status("done")) {
    if (run->final_val_loss) losses[run->config.train.seed] = *run->final_val_loss;
  }
  return losses;
}

}  // namespace

ordered_json pairs_with_base(const Grouping& grouping, std::size_t base) {
  const Group& first = grouping.groups[base];
  const std::map<Index, double> of_base = losses_by_seed(first);
  ordered_json pairs = ordered_json::array();
  for (const Group& group : grouping.groups) {
    const std::map<Index, double> losses = losses_by_seed(group);
    if (&group == &first || of_base.size() < 2 || losses.size() < 2) continue;
    if (!incomparable(grouping, first, group).empty()) continue;
    Metric differences;
    std::size_t lower = 0;
    for (const auto& [seed, loss] : losses) {
      if (!of_base.contains(seed)) continue;
      differences.values.push_back(loss - of_base.at(seed));
      lower += differences.values.back() < 0;
    }
    const std::size_t seeds = differences.values.size();
    const bool told = seeds > 1,
               lost = first.with_status("diverged").size() + group.with_status("diverged").size();
    const std::string verdict = verdict_on(differences);
    pairs.push_back({{"group", group.label},
                     {"base", first.label},
                     {"mean", told ? ordered_json(differences.mean()) : nullptr},
                     {"standard_error", told ? ordered_json(differences.standard_error()) : nullptr},
                     {"n", seeds},
                     {"verdict", verdict},
                     {"difference", told ? difference_text(differences) : ""},
                     {"text", !told ? verdict
                                    : text("lower in ", lower, " of ", seeds, " shared seeds: ", verdict,
                                           lost ? "; seeds that diverged are left out" : "")}});
  }
  return pairs;
}

ordered_json remarks_on(const Grouping& grouping, std::size_t base, const ordered_json& pairs) {
  const std::vector<Group>& groups = grouping.groups;
  const Group& first = groups[base];
  Sentences say;
  for (const Group& group : groups) {
    if (&group != &first) say_differences(say, first, group, /*with_values=*/groups.size() == 2);
  }
  for (const Group& group : groups) {
    const std::vector<std::string> reasons = incomparable(grouping, first, group);
    if (reasons.empty() || first.is_probe() || group.is_probe()) continue;
    say.add("not_comparable", group, "", ": losses are not comparable with those of ", first.label, ": ",
            enumerated(reasons));
  }
  for (const Group& group : groups) say_ended_early(say, group);
  for (const Group& group : groups) say_losses(say, group);
  for (const Group& group : groups) say_model(say, group);
  const auto told = std::count_if(pairs.begin(), pairs.end(), [](const auto& pair) { return pair["n"] > 1; });
  if (told >= many_comparisons)
    say.add("many_comparisons", first, "", told, " configs are compared with ", first.label,
            ": where there is no difference, chance still calls one in 20 clear");
  for (const Group& group : groups) {
    if (groups.size() == 1 || group.runs.size() > 1) continue;
    say.add("one_seed", group, "", "one seed a config: small differences may be chance; more seeds ",
            "(--set train.seed=2 --out ...) become mean ± spread here");
  }
  return std::move(say).json();
}

}  // namespace normscope
