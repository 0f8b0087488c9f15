// Which of the keys that set two configs apart are choices, and which only follow from another one.
#include <algorithm>
#include <string_view>

#include "cli/compare_groups.h"
#include "config/checks.h"
#include "config/fields.h"

namespace normscope {
namespace {

// Keys that some configs do not use: their value means something only where another key asks for it.
struct Use {
  std::string_view key;
  bool (*used)(const RunConfig&);
};
constexpr Use uses[] = {
    {"model.mix_post_fraction",
     [](const RunConfig& c) {
       const auto& all = c.model.norm_placement;
       return std::find(all.begin(), all.end(), PlacementKind::mix) != all.end();
     }},
    {"model.norm_groups", [](const RunConfig& c) { return c.model.norm == NormKind::groupnorm; }},
    {"model.norm_eps", [](const RunConfig& c) { return c.model.norm != NormKind::none; }},
    {"model.norm_eps_outside", [](const RunConfig& c) { return c.model.norm != NormKind::none; }},
    {"model.norm_affine", [](const RunConfig& c) { return c.model.norm != NormKind::none; }},
    {"model.norm_bias", [](const RunConfig& c) { return c.model.norm != NormKind::none; }},
    {"model.init.std", [](const RunConfig& c) { return c.model.init.scheme == InitScheme::gpt2; }},
    {"train.min_lr", [](const RunConfig& c) { return c.train.schedule != ScheduleKind::constant; }},
    {"train.beta1", [](const RunConfig& c) { return c.train.optimizer == OptimizerKind::adamw; }},
    {"train.beta2", [](const RunConfig& c) { return c.train.optimizer == OptimizerKind::adamw; }},
    {"train.adam_eps", [](const RunConfig& c) { return c.train.optimizer == OptimizerKind::adamw; }},
    {"train.momentum", [](const RunConfig& c) { return c.train.optimizer == OptimizerKind::sgd; }},
    {"name", [](const RunConfig&) { return false; }},
    {"train.threads", [](const RunConfig&) { return false; }},
    {"log.every", [](const RunConfig&) { return false; }},
    {"log.layers_every", [](const RunConfig&) { return false; }},
    {"checkpoint.every", [](const RunConfig&) { return false; }},
};

bool uses_key(const RunConfig& config, const std::string& key) {
  const auto found =
      std::find_if(std::begin(uses), std::end(uses), [&](const Use& u) { return u.key == key; });
  return found == std::end(uses) || found->used(config);
}

// Whether the config has the value that it would have if nobody had written one.
bool has_default(const Field& field, RunConfig config) {
  const auto value = field.get(config);
  field.apply_default(config);
  settle_rest(config);
  return field.get(config) == value;
}

// Whether `config` would have its own value even if `other`'s were written into it: rezero has no norm,
// rmsnorm no bias.
bool decides_itself(const Field& field, RunConfig config, const RunConfig& other) {
  const auto value = field.get(config);
  field.set(config, field.get(other));
  settle_norm(config);
  settle_rest(config);
  return field.get(config) == value;
}

// A value that nobody had to choose: both configs have what their other keys imply.
bool follows(const Field& field, const RunConfig& a, const RunConfig& b) {
  if (field.apply_default != nullptr && has_default(field, a) && has_default(field, b)) return true;
  return decides_itself(field, a, b) || decides_itself(field, b, a);
}

}  // namespace

Contrast contrast_of(const RunConfig& a, const RunConfig& b) {
  Contrast contrast;
  for (const Difference& difference : keys_that_differ(a, b)) {
    if (difference.key == "train.seed") continue;
    const bool in_a = uses_key(a, difference.key), in_b = uses_key(b, difference.key);
    if (!in_a && !in_b) {
      if (difference.key != "name") contrast.idle.push_back(difference);
    } else if (!in_a || !in_b || follows(*find_field(difference.key), a, b)) {
      // Used on one side only: part of the choice that made it mean something (sgd's momentum beside adamw).
      contrast.followed.push_back(difference);
    } else {
      contrast.chosen.push_back(difference);
    }
  }
  return contrast;
}

}  // namespace normscope
