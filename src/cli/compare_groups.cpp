#include <algorithm>
#include <set>

#include "cli/compare.h"
#include "core/text.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace fs = std::filesystem;
using nlohmann::ordered_json;
namespace {

constexpr std::size_t max_label_keys = 4;

// `paths`: by key and hash, the first path of a corpus, which replaces its other paths.
Keys keys_of(const RunRecord& run, std::map<std::string, ordered_json>& paths) {
  Keys keys;
  for (const Field& field : fields()) {
    if (field.is_bookkeeping || field.key == "train.seed" || !field.used_in(run.config)) continue;
    ordered_json& value = keys[&field] = field.get(run.config);
    if (field.key == "train.steps" && run.status == status_probe) value = 0;
    if (field.names_text && value != "" && !run.corpus_hash.empty())
      value = paths.try_emplace(field.key + run.corpus_hash, value).first->second;
  }
  return keys;
}

// A key's value in words: "L 12", "post", "pre ×6, post ×6", "residual false".
std::string words(const Field& field, const ordered_json& value) {
  if (value == "none" && field.label == "{}") return "no norm";
  const ordered_json list = value.is_array() ? value : ordered_json::array({value});
  std::vector<std::string> parts;
  for (auto one = list.begin(), next = one; one != list.end(); one = next) {
    next = std::find_if(one, list.end(), [&](const ordered_json& other) { return other != *one; });
    const std::string value_text = one->is_string()         ? one->get<std::string>()
                                   : one->is_number_float() ? text(one->get<double>())
                                                            : one->dump();
    parts.push_back(field.names_text ? fs::path(value_text).stem().string() : value_text);
    if (next - one > 1) parts.back() += text(" ×", next - one);
  }
  std::string label = field.label.empty() ? text(last_part(field.key), " {}") : field.label;
  return escape_controls(label.replace(label.find("{}"), 2, join(parts)));
}

// Labels are the keys, not derived ones, in which groups differ, words before numbers ("post · L 12"). Groups
// with the same label get the folder too.
void set_labels(std::vector<Group>& groups) {
  std::set<const Field*> differing;
  for (std::size_t g = 1; g < groups.size(); ++g) {
    for (const KeyChange& change : config_diff(groups[g - 1], groups[g])) {
      if (!change.is_derived) differing.insert(change.field);
    }
  }
  if (differing.empty()) differing = {find_field("model.norm_placement"), find_field("model.norm")};
  std::vector<const Field*> keys(differing.begin(), differing.end());
  std::stable_partition(keys.begin(), keys.end(), [](const Field* key) { return key->label == "{}"; });
  keys.resize(std::min(keys.size(), max_label_keys));
  std::map<std::string, std::size_t> times;
  for (Group& group : groups) {
    std::vector<std::string> parts;
    for (const Field* key : keys) {
      if (!group.keys.contains(key)) continue;
      group.labelled_keys[key->key] = group.keys.at(key);
      parts.push_back(words(*key, group.keys.at(key)));
    }
    group.label = join(parts, " · ");
    ++times[group.label];
  }
  for (Group& group : groups) {
    if (times.at(group.label) > 1)
      group.label += " · " + escape_controls(fs::path(group.runs[0].folder).lexically_normal().string());
  }
}

// Whether the key has its default value in this config.
bool has_default(const Field& field, RunConfig config) {
  const ordered_json value = field.get(config);
  field.apply_default(config);
  reset_unused(config);
  return field.get(config) == value;
}

}  // namespace

std::size_t Group::count(std::string_view status) const {
  return static_cast<std::size_t>(std::ranges::count(runs, status, &RunRecord::status));
}

Metric Group::metric(std::optional<double> RunRecord::*member) const {
  const bool all_diverged = count(status_diverged) == runs.size();
  Metric metric;
  for (const RunRecord& run : runs) {
    if (run.*member && (all_diverged || run.status != status_diverged))
      metric.values.push_back(*(run.*member));
  }
  return metric;
}

std::vector<Group> group_by_config(const std::vector<RunRecord>& runs) {
  std::vector<Group> groups;
  std::map<std::string, ordered_json> paths;
  std::map<std::pair<Keys, Index>, std::size_t> times;         // the number of runs of a config and seed
  std::map<std::pair<Keys, std::size_t>, std::size_t> places;  // of a config's groups
  for (const RunRecord& run : runs) {
    const Keys keys = keys_of(run, paths);
    const std::size_t repeat = times[{keys, run.config.train.seed}]++;
    const auto [place, is_new] = places.try_emplace({keys, repeat}, groups.size());
    if (is_new) groups.push_back({.keys = keys});
    groups[place->second].runs.push_back(run);
  }
  set_labels(groups);
  return groups;
}

std::vector<KeyChange> config_diff(const Group& a, const Group& b) {
  std::vector<KeyChange> changes;
  for (const Field& field : fields()) {
    const bool used_in_a = a.keys.contains(&field), used_in_b = b.keys.contains(&field);
    const ordered_json from = used_in_a ? a.keys.at(&field) : field.get(a.config());
    const ordered_json to = used_in_b ? b.keys.at(&field) : field.get(b.config());
    if ((!used_in_a && !used_in_b) || from == to) continue;
    const bool both_default =
        field.apply_default && has_default(field, a.config()) && has_default(field, b.config());
    changes.push_back({&field, text(quote(from), " -> ", quote(to)), used_in_a != used_in_b || both_default});
  }
  return changes;
}

}  // namespace normscope
