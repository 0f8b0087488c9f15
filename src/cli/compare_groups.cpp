#include "cli/compare_groups.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/hash.h"
#include "io/file.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace fs = std::filesystem;
using nlohmann::ordered_json;
namespace {

constexpr std::size_t max_label_keys = 4;

// Paths, as JSON, and the one that stands for all with their text. Files are read only where paths differ.
std::map<std::string, ordered_json> places_of_texts(const std::vector<RunRecord>& runs,
                                                    std::set<std::string>& unread) {
  std::map<std::string, ordered_json> all, by_text;
  for (const Field& field : fields()) {
    for (const RunRecord& run : runs) {
      if (!field.names_text) break;
      if (const auto paths = field.get(run.config); paths != "") all[paths.dump()] = paths;
    }
  }
  if (all.size() < 2) return all;
  for (auto& [written, paths] : all) {
    std::uint64_t hash = fnv1a_basis;
    try {
      for (const std::string path : paths.is_array() ? paths : ordered_json::array({paths})) {
        require(fs::is_regular_file(path), "compare", "no file to read");  // but a pipe, say
        hash = fnv1a(read_file(path), hash);
      }
      paths = by_text.try_emplace(hex(hash), paths).first->second;
    } catch (const Error&) {
      unread.insert(written);
    }
  }
  return all;
}

// What its numbers follow from; a probe takes no steps.
Keys keys_of(const RunRecord& run, const std::map<std::string, ordered_json>& places) {
  Keys keys;
  for (const Field& field : fields()) {
    if (field.is_bookkeeping || field.key == "train.seed" || !field.used_in(run.config)) continue;
    if (field.key == "train.steps" && run.status == "probe") continue;
    const ordered_json value = field.get(run.config);
    const auto place = field.names_text ? places.find(value.dump()) : places.end();
    keys[&field] = place == places.end() ? value : place->second;
  }
  return keys;
}

fs::path folder_of(const RunRecord& run) {
  const fs::path path = fs::absolute(run.folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

using Runs = std::vector<const RunRecord*>;

// Sorted into lists of one name each, in the order in which the names come.
template <class NameOf>
std::vector<Runs> sorted_by(const Runs& runs, const NameOf& name_of) {
  std::vector<Runs> lists;
  std::map<std::string, std::size_t> known;
  for (const RunRecord* run : runs) {
    const auto [found, is_new] = known.try_emplace(name_of(*run), lists.size());
    if (is_new) lists.emplace_back();
    lists[found->second].push_back(run);
  }
  return lists;
}

bool each_seed_is_there_once(const Runs& runs) {
  std::set<Index> seeds;
  for (const RunRecord* run : runs) seeds.insert(run->config.train.seed);
  return seeds.size() == runs.size();
}

// A seed that is there twice (another build, other weights) is no further seed: told apart by the folders.
std::vector<Runs> without_repeats(const Runs& runs) {
  if (each_seed_is_there_once(runs)) return {runs};
  const auto by_parent =
      sorted_by(runs, [](const auto& run) { return folder_of(run).parent_path().string(); });
  if (std::all_of(by_parent.begin(), by_parent.end(), each_seed_is_there_once)) return by_parent;
  return sorted_by(runs, [](const auto& run) { return folder_of(run).string(); });
}

// --- labels ---

// A key's value as a reader says it: "L 12", "post", "pre ×6, post ×6", "residual off".
std::string words(const Field& field, const ordered_json& value) {
  const auto plain = [&](const ordered_json& v) {
    if (!v.is_string()) return v.is_number_float() ? text(v.get<double>()) : v.dump();
    return field.names_text ? fs::path(v.get<std::string>()).stem().string() : v.get<std::string>();
  };
  if (value == "none" && field.label == "{}") return "no norm";
  std::string said = value.is_boolean() ? (value ? "on" : "off") : value.is_array() ? "" : plain(value);
  for (std::size_t i = 0, next; value.is_array() && i < value.size(); i = next) {
    for (next = i + 1; next < value.size() && value[next] == value[i];) ++next;
    said += (i == 0 ? "" : field.names_text ? " + " : ", ") + plain(value[i]);
    if (next - i > 1) said += text(" ×", next - i);
  }
  std::string label = field.label.empty() ? field.key.substr(field.key.rfind('.') + 1) + " {}" : field.label;
  return escape_controls(label.replace(label.find("{}"), 2, said));
}

// How many of the groups these keys tell apart.
std::size_t count_told(const std::vector<Group>& groups, const std::vector<const Field*>& by) {
  std::set<std::string> told;
  for (const Group& group : groups) {
    std::string values;
    for (const Field* field : by)
      values += (group.keys.contains(field) ? group.keys.at(field).dump() : "") + "\n";
    told.insert(values);
  }
  return told.size();
}

// The keys in which the groups differ; those that follow from others only where nothing else tells two apart,
// and of very many no more than that takes.
void set_keys_apart(Grouping& grouping) {
  const std::vector<Group>& groups = grouping.groups;
  std::vector<const Field*>& apart = grouping.apart;
  for (const Field& field : fields()) {
    std::set<std::string> values;
    for (const Group& group : groups) {
      if (group.keys.contains(&field)) values.insert(group.keys.at(&field).dump());
    }
    if (values.size() > 1) apart.push_back(&field);
  }
  // Words before numbers: "post · L 12".
  std::stable_partition(apart.begin(), apart.end(), [](const Field* field) { return field->label == "{}"; });
  const auto drop = [&](const Field* field) {
    std::vector<const Field*> without = apart;
    std::erase(without, field);
    if (count_told(groups, without) == count_told(groups, apart)) apart = without;
  };
  for (const Field& field : fields()) {
    if (field.apply_default) drop(&field);
  }
  const std::vector<const Field*> all = apart;
  for (auto field = all.rbegin(); field != all.rend() && apart.size() > max_label_keys; ++field) drop(*field);
  grouping.apart_in_more = apart.size() < all.size();
  if (apart.empty()) apart = {find_field("model.norm_placement"), find_field("model.norm")};
}

void set_labels(Grouping& grouping) {
  std::vector<Group>& groups = grouping.groups;
  const auto probes =
      std::count_if(groups.begin(), groups.end(), [](const Group& g) { return g.is_probe(); });
  std::map<std::string, std::vector<Group*>> by_label;
  for (Group& group : groups) {
    for (const Field* field : grouping.apart) {
      if (!group.keys.contains(field)) continue;
      group.label += (group.label.empty() ? "" : " · ") + words(*field, group.keys.at(field));
    }
    if (grouping.apart_in_more) group.label += " · …";
    if (group.is_probe() && probes < std::ssize(groups)) group.label += " · probe";
    by_label[group.label].push_back(&group);
  }
  for (auto& [label, same] : by_label) {  // equal ones are told apart by their folders, less what these share
    if (same.size() == 1) continue;
    fs::path shared = fs::path(same[0]->folder).parent_path();
    const auto outside = [&](const Group* group) {
      return *fs::path(group->folder).lexically_relative(shared).begin() == "..";
    };
    while (std::any_of(same.begin(), same.end(), outside)) shared = shared.parent_path();
    for (Group* group : same) {
      const std::string apart_by =
          escape_controls(fs::path(group->folder).lexically_relative(shared).string());
      group->label = by_label.size() == 1 ? apart_by : label + " · " + apart_by;
    }
  }
}

// Whether the config has the value that it would have if nobody had written one.
bool has_default(const Field& field, RunConfig config) {
  const auto value = field.get(config);
  field.apply_default(config);
  settle(config);
  return field.get(config) == value;
}

}  // namespace

Metric Group::metric(std::optional<double> RunRecord::*member) const {
  const bool some_survived = with_status("diverged").size() < runs.size();
  Metric metric;
  for (const RunRecord& run : runs) {
    if (run.*member && !(some_survived && run.status == "diverged")) metric.values.push_back(*(run.*member));
  }
  return metric;
}

std::vector<const RunRecord*> Group::with_status(std::string_view status) const {
  std::vector<const RunRecord*> found;
  for (const RunRecord& run : runs) {
    if (run.status == status) found.push_back(&run);
  }
  return found;
}

Grouping group_by_config(const std::vector<RunRecord>& runs) {
  Grouping grouping;
  const auto places = places_of_texts(runs, grouping.unread_texts);
  Runs all;
  for (const RunRecord& run : runs) all.push_back(&run);
  const auto config = [&](const RunRecord& run) {
    std::string values = run.status == "probe" ? "probe" : "";
    for (const auto& [field, value] : keys_of(run, places)) values += field->key + value.dump() + "\n";
    return values;
  };
  for (const Runs& same : sorted_by(all, config)) {
    for (const Runs& seeds : without_repeats(same)) {
      const fs::path folder = folder_of(*seeds[0]);
      Group group{{}, keys_of(*seeds[0], places), seeds.size() > 1 ? folder.parent_path() : folder, ""};
      for (const RunRecord* run : seeds) group.runs.push_back(*run);
      grouping.groups.push_back(std::move(group));
    }
  }
  set_keys_apart(grouping);
  set_labels(grouping);
  return grouping;
}

ConfigDiff config_diff(const Group& a, const Group& b) {
  ConfigDiff diff;
  for (const Field& field : fields()) {
    const auto in_a = a.keys.find(&field), in_b = b.keys.find(&field);
    const bool one_sided = (in_a == a.keys.end()) != (in_b == b.keys.end());
    const ordered_json from = field.get(a.config()), to = field.get(b.config());
    // A probe has no use for some keys of training: that is no choice.
    if (one_sided ? from == to || a.is_probe() != b.is_probe()
                  : in_a == a.keys.end() || in_a->second == in_b->second)
      continue;
    const bool derived = one_sided || (field.apply_default && has_default(field, a.config()) &&
                                       has_default(field, b.config()));
    (derived ? diff.derived : diff.independent).push_back({&field, text(quote(from), " -> ", quote(to))});
  }
  return diff;
}

}  // namespace normscope
