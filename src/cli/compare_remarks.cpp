#include "cli/compare_remarks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "cli/session.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "data/ngram.h"
#include "io/utf8.h"
#include "model/norms.h"

namespace normscope {
namespace {

constexpr double small_branch = 0.05;  // of the stream: below it the place of a norm hardly matters
constexpr double unigram_tolerance =
    0.08;  // nats: this near to the unigram level, only letter counts are learnt
constexpr std::size_t longest_story = 400;  // bytes; a summary may hold anything

// "a", "a and b", "a, b and c".
std::string enumerated(const std::vector<std::string>& words) {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i)
    all += (i == 0 ? "" : i + 1 < words.size() ? ", " : " and ") + words[i];
  return all;
}

// "model.n_layer 6 -> 12, train.lr 0.001 -> 0.01"
std::string keys_text(const std::vector<Difference>& differences) {
  std::string all;
  for (const Difference& d : differences)
    all += text(all.empty() ? "" : ", ", d.key, " ", printable(d.values));
  return all;
}

bool is_init(const Difference& difference) { return difference.key.starts_with("model.init."); }

bool has_deepnorm(const RunConfig& config) {
  const auto& all = config.model.norm_placement;
  return std::find(all.begin(), all.end(), PlacementKind::deepnorm) != all.end();
}

// Characters that training shows the model, repetitions counted.
double characters_seen(const RunConfig& config) {
  return static_cast<double>(config.train.steps) * static_cast<double>(config.train.grad_accum) *
         static_cast<double>(config.train.batch_size) * static_cast<double>(config.model.context);
}

// Which windows of the validation part an evaluation takes; 0: all of it, whatever the windows.
std::tuple<Index, Index> windows(const RunConfig& config) {
  if (config.eval.batches == 0) return {0, 0};
  return {config.eval.batches * config.train.batch_size, config.model.context};
}

std::string seed_text(const RunRecord& run) { return text("seed ", run.config.train.seed); }

std::string many(std::size_t count, const char* what) {
  return text(count, ' ', what, count == 1 ? "" : "s");
}

}  // namespace

Comparison::Comparison(const std::vector<Group>& groups, std::vector<std::string> names)
    : groups_(groups), names_(std::move(names)), first_(groups.size() == 2 ? names_[0] : "the first") {
  std::map<std::tuple<std::vector<std::string>, double, std::string>, std::optional<Text>> known;
  for (const Group& group : groups_) {
    const DataConfig& data = group.config().data;
    const auto [entry, added] = known.try_emplace({data.path, data.val_fraction, data.val_path});
    if (added) {
      try {
        const Corpus corpus = corpus_of(group.config());
        entry->second = Text{corpus.hash, corpus.vocab.size(), std::nullopt};
        if (corpus.val.size() > 1)
          entry->second->unigram = ngram_baselines(corpus.train, corpus.val, corpus.vocab.size())[1].nats;
      } catch (const Error&) {  // moved or changed since: nothing is said of it
      }
    }
    texts_.push_back(entry->second);
  }
}

// How the texts of two groups differ; empty if they do not. One text may lie in two places.
std::string Comparison::other_text(std::size_t a, std::size_t b) const {
  const DataConfig &one = groups_[a].config().data, &other = groups_[b].config().data;
  if (one.val_fraction != other.val_fraction || one.val_path.empty() != other.val_path.empty())
    return "is judged on another validation split";
  if (one.path == other.path && one.val_path == other.val_path) return "";
  if (!texts_[a] || !texts_[b]) return "has its text in other files, which cannot be read now";
  return texts_[a]->hash == texts_[b]->hash ? "" : "learns from another text";
}

std::string Comparison::other_vocabulary(std::size_t a, std::size_t b) const {
  const auto size = [&](std::size_t g) {
    for (const RunRecord& run : groups_[g].runs) {
      if (run.vocab > 0) return run.vocab;
    }
    return texts_[g] ? texts_[g]->vocab : 0;
  };
  if (size(a) == 0 || size(b) == 0 || size(a) == size(b)) return "";
  return text("has another vocabulary (", size(b), " characters, not ", size(a), ")");
}

std::vector<std::string> Comparison::remarks() const {
  Lines lines;
  for (std::size_t g = 1; g < groups_.size(); ++g) say_differences(lines, g);
  for (std::size_t g = 1; g < groups_.size(); ++g) say_unequal(lines, g);
  for (std::size_t g = 0; g < groups_.size(); ++g) say_ended_early(lines, g);
  for (std::size_t g = 0; g < groups_.size(); ++g) say_figures(lines, g);
  const bool single =
      std::any_of(groups_.begin(), groups_.end(), [](const Group& g) { return g.runs.size() == 1; });
  if (groups_.size() > 1 && single) {
    lines.emplace_back(
        "one seed a config: small differences may be chance; more seeds (--set train.seed=2 --out ...) "
        "become mean ± spread here");
  }
  return lines;
}

// What sets a group apart from the first one, and whether that is one cause.
void Comparison::say_differences(Lines& lines, std::size_t g) const {
  const Contrast contrast = contrast_of(groups_[0].config(), groups_[g].config());
  std::string line = text(names_[g], " differs from ", first_, " in: ");
  line += contrast.chosen.empty() ? "nothing chosen that bears on the losses" : keys_text(contrast.chosen);
  if (!contrast.followed.empty()) line += "; with that comes " + keys_text(contrast.followed);
  if (contrast.chosen.empty() && !contrast.idle.empty())
    line += "; in name only: " + keys_text(contrast.idle);
  if (contrast.chosen.size() > 1) {
    line += text("; ", contrast.chosen.size(),
                 " choices at once: which of them is the cause cannot be told from these two");
  }

  // A placement may bring an initialisation of its own; a loss does not say which of the two did it.
  std::vector<Difference> init;
  std::copy_if(contrast.followed.begin(), contrast.followed.end(), std::back_inserter(init), is_init);
  std::string weights = keys_text(init);
  if (has_deepnorm(groups_[0].config()) != has_deepnorm(groups_[g].config()))
    weights += (weights.empty() ? "" : ", ") + std::string("deepnorm's factor");
  if (!weights.empty() && contrast.chosen.size() == 1 && !is_init(contrast.chosen[0]))
    line += text("; so it starts from other weights (", weights, "), which may be the cause as well");
  lines.push_back(line);
}

// Why a group's losses may not be set beside the first one's.
void Comparison::say_unequal(Lines& lines, std::size_t g) const {
  const RunConfig &first = groups_[0].config(), &other = groups_[g].config();
  std::vector<std::string> reasons;
  for (const std::string& reason : {other_text(0, g), other_vocabulary(0, g)}) {
    if (!reason.empty()) reasons.push_back(reason);
  }
  if (first.train.steps != other.train.steps) {
    reasons.push_back(
        text("trains for ", grouped(other.train.steps), " steps, not ", grouped(first.train.steps)));
  }
  if (!reasons.empty()) {
    lines.push_back(
        text(names_[g], " ", enumerated(reasons), ": its losses are not comparable with those of ", first_));
  }
  const double seen = characters_seen(other), seen_first = characters_seen(first);
  if (first.train.steps == other.train.steps && seen != seen_first) {
    lines.push_back(text(names_[g], " sees ", significant_text(seen / seen_first),
                         " times the characters that ", first_, " sees in as many steps"));
  }
  if (reasons.empty() && windows(first) != windows(other)) {
    lines.push_back(
        text(names_[g], " is validated on other windows of the split than ", first_,
             " (eval.batches, train.batch_size, model.context); `normscope eval` takes all of it"));
  }
}

// Runs that are not done, and what that does to a mean.
void Comparison::say_ended_early(Lines& lines, std::size_t g) const {
  const Group& group = groups_[g];
  const auto diverged = group.with_status("diverged");
  const auto place = [&](const RunRecord& run) {
    return text(group.runs.size() > 1 ? seed_text(run) + " " : "", "at step ",
                run.diverged_step.value_or(run.steps + 1));
  };
  if (!diverged.empty()) {
    std::vector<std::string> places;
    for (const RunRecord* run : diverged) places.push_back(place(*run));
    const bool several = group.runs.size() > 1;
    std::string line = names_[g] + " diverged ";
    line += several ? text("in ", diverged.size(), " of ", many(group.runs.size(), "seed"), ": ") : "";
    line += enumerated(places);
    if (diverged.size() < group.runs.size())
      line += "; its figures are of the seeds that survived only, and so biased";
    const auto told =
        std::find_if(diverged.begin(), diverged.end(), [](const auto* run) { return !run->story.empty(); });
    if (told != diverged.end())
      line += text("; ", several ? seed_text(**told) + ", " : "",
                   printable((*told)->story.substr(0, longest_story)));
    lines.push_back(line);
  }
  std::vector<std::string> unfinished;
  for (const RunRecord& run : group.runs) {
    if (run.status == "done" || run.status == "diverged") continue;
    const std::string who = group.runs.size() > 1 ? seed_text(run) + " " : "";
    unfinished.push_back(run.status == "unfinished"
                             ? who + "has no summary (it still runs, was killed, or is a probe)"
                             : text(who, "is ", printable(run.status), " at step ", grouped(run.steps),
                                    " of ", grouped(run.config.train.steps)));
  }
  if (!unfinished.empty()) {
    lines.push_back(text(names_[g], group.runs.size() > 1 ? ": " : " ", enumerated(unfinished),
                         "; figures of a run that is not done are no result"));
  }
  std::map<Index, int> runs_of;
  for (const RunRecord& run : group.runs) ++runs_of[run.config.train.seed];
  for (const auto& [seed, count] : runs_of) {
    if (count > 1) {
      lines.push_back(text(names_[g], ": seed ", seed, " is there ", count,
                           " times; repeats are no further seeds and make ± too small"));
    }
  }
}

// What the figures of one group say by themselves.
void Comparison::say_figures(Lines& lines, std::size_t g) const {
  const Group& group = groups_[g];
  const auto done = group.with_status("done");
  if (texts_[g] && texts_[g]->unigram && !done.empty()) {
    const double level = *texts_[g]->unigram;
    const auto at_level =
        static_cast<std::size_t>(std::count_if(done.begin(), done.end(), [&](const auto* run) {
          return run->final_val_loss && std::abs(*run->final_val_loss - level) < unigram_tolerance;
        }));
    const bool all = at_level == group.runs.size();
    if (at_level > 0) {
      lines.push_back(
          text(names_[g], all ? "" : text(" (", at_level, " of ", many(group.runs.size(), "seed"), ")"),
               " stands at the unigram level (", fixed(level, 2),
               " nats): it has learnt how often each character occurs and nothing of their order"));
    }
  }
  const Figure share = group.figure(&RunRecord::branch_share);
  if (share.known() && share.mean() < small_branch) {
    lines.push_back(text(names_[g], ": at the start a branch is ", fixed(100 * share.mean(), 1),
                         "% of the stream it is added to; so small that the norms' place can hardly matter"));
  }
  // Statistics over positions tell a token of what comes after it. batchnorm's are fixed in evaluation.
  if (const NormRow& norm = norm_row(group.model().norm); norm.leaks) {
    lines.push_back(text(names_[g], ": ", norm.name,
                         " averages over positions, so a prediction knows of later characters",
                         norm.has_running ? " in training; its training loss is not that of a causal model"
                                          : "; its losses are not those of a causal model"));
  }
}

}  // namespace normscope
