// Which of the keys that set two configs apart are choices, and which only follow from another one.
#include "cli/compare_groups.h"
#include "config/fields.h"

namespace normscope {
namespace {

// Whether the config has the value that it would have if nobody had written one.
bool has_default(const Field& field, RunConfig config) {
  const auto value = field.get(config);
  field.apply_default(config);
  settle(config);
  return field.get(config) == value;
}

// Whether `config` would have its own value even if `other`'s were written into it: rezero has no norm,
// rmsnorm no bias.
bool decides_itself(const Field& field, RunConfig config, const RunConfig& other) {
  const auto value = field.get(config);
  field.set(config, field.get(other));
  settle(config);
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
    const Field& field = *find_field(difference.key);
    const bool in_a = !field.is_bookkeeping && field.used_in(a),
               in_b = !field.is_bookkeeping && field.used_in(b);
    if (!in_a && !in_b) {
      if (difference.key != "name") contrast.idle.push_back(difference);
    } else if (!in_a || !in_b || follows(field, a, b)) {
      // Used on one side only: part of the choice that made it mean something (sgd's momentum beside adamw).
      contrast.followed.push_back(difference);
    } else {
      contrast.chosen.push_back(difference);
    }
  }
  return contrast;
}

}  // namespace normscope
