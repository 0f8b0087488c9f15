#include "cli/compare_labels.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "config/fields.h"
#include "core/error.h"
#include "io/utf8.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t comfortable = 28;  // up to here a table has room for a label as it is
constexpr std::size_t widest_label = 40;
constexpr std::string_view separators = "_-.";

bool is_separator(char c) { return separators.find(c) != separators.npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

fs::path whole_path(const std::string& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// The last part of a folder's path, "pre" of "runs/pre/".
std::string folder_name(const std::string& folder) { return whole_path(folder).filename().string(); }

// `name` without what names the seed: "seed=3" and its like anywhere between separators, else a 3 at the end.
std::string without_seed(const std::string& name, Index seed) {
  const std::string number = std::to_string(seed);
  for (const char* middle : {"=", "-", "_", ""}) {
    const std::string part = std::string("seed") + middle + number;
    for (std::size_t at = name.find(part); at != name.npos; at = name.find(part, at + 1)) {
      const std::size_t end = at + part.size();
      const bool starts = at == 0 || is_separator(name[at - 1]),
                 ends = end == name.size() || is_separator(name[end]);
      if (!starts || !ends) continue;
      if (at > 0) return name.substr(0, at - 1) + name.substr(end);  // with the separator before it
      return end < name.size() ? name.substr(end + 1) : "";
    }
  }
  if (!name.ends_with(number)) return name;
  std::string rest = name.substr(0, name.size() - number.size());
  if (rest.empty()) return rest;
  if (is_digit(rest.back()) || rest.back() == '.' || rest.back() == '=')
    return name;  // of a longer number, a value
  if (is_separator(rest.back())) rest.pop_back();
  return rest;
}

// What the names of a group's folders have in common once the seeds are taken out; where only the seeds are
// left, the name of the folder around them; empty if they have nothing in common.
std::string common_name(const std::vector<RunRecord>& runs) {
  std::set<std::string> names;
  for (const RunRecord& run : runs)
    names.insert(without_seed(folder_name(run.folder), run.config.train.seed));
  if (names.size() > 1) return "";
  if (!names.begin()->empty()) return *names.begin();
  std::set<fs::path> parents;
  for (const RunRecord& run : runs) parents.insert(whole_path(run.folder).parent_path());
  return parents.size() == 1 ? parents.begin()->filename().string() : "";
}

// "a" of "a/pre": the folder in which the user named the run; empty if none was named.
std::string written_parent(const std::string& folder) {
  std::string parent = folder.substr(0, folder.find_last_not_of('/') + 1);
  const std::size_t slash = parent.rfind('/');
  return slash == parent.npos ? "" : parent.substr(0, slash);
}

// The names a group may have, the shortest first; the last one is unique.
std::vector<std::string> candidates(const Group& group) {
  const std::string& folder = group.runs[0].folder;
  const std::string first = folder_name(folder);
  std::vector<std::string> names;
  if (const std::string common = group.runs.size() > 1 ? common_name(group.runs) : ""; !common.empty()) {
    const std::string parent = written_parent(folder);
    const bool is_parent = whole_path(folder).parent_path().filename() == common;
    names = {common, is_parent || parent.empty() ? parent : parent + "/" + common};
  }
  names.insert(names.end(), {first, folder, whole_path(folder).string()});
  std::erase(names, "");
  return names;
}

// A sweep's name as its key=value parts: "norm_placement=res_post_n_layer=2". Keys and values hold
// underscores themselves, so only the names of config keys are taken to begin a part. Empty if the name is
// not of this form.
std::vector<std::string> parts_of(const std::string& name) {
  const auto key_at = [&](std::size_t at) {
    const std::size_t equals = name.find('=', at);
    if (equals == name.npos) return false;
    const std::string key = name.substr(at, equals - at);
    return std::any_of(fields().begin(), fields().end(), [&](const Field& field) {
      return field.key == key || field.key.substr(field.key.rfind('.') + 1) == key;
    });
  };
  std::vector<std::string> parts;
  if (!key_at(0)) return parts;
  std::size_t begin = 0;
  for (std::size_t i = 1; i < name.size(); ++i) {
    if (name[i] != '_' || !key_at(i + 1)) continue;
    parts.push_back(name.substr(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(name.substr(begin));
  return parts;
}

// Printable text without the characters in its middle that make it wider than `width`.
std::string cut(const std::string& text, std::size_t width) {
  if (shown_width(text) <= width) return text;
  const auto byte_of = [&](std::size_t character) {  // where a character starts
    std::size_t at = 0;
    for (; character > 0; --character)
      at += static_cast<std::size_t>(decode_utf8(std::string_view(text).substr(at)).size);
    return at;
  };
  const std::size_t tail = width / 3, head = width - tail - 1;
  return text.substr(0, byte_of(head)) + "…" + text.substr(byte_of(shown_width(text) - tail));
}

bool all_differ(const std::vector<std::string>& texts) {
  return std::set<std::string>(texts.begin(), texts.end()).size() == texts.size();
}

// "pre x3 seeds"; runs of a seed that is there twice are not seeds.
std::string count_text(const Group& group) {
  if (group.runs.size() == 1) return "";
  std::set<Index> seeds;
  for (const RunRecord& run : group.runs) seeds.insert(run.config.train.seed);
  return text(" x", group.runs.size(), seeds.size() == group.runs.size() ? " seeds" : " runs");
}

std::string label_without_count(const Group& group) {
  return group.label.substr(0, group.label.size() - count_text(group).size());
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// "pre" of "norm_placement=pre": words say what they are, numbers, true and false do not.
std::string bare(const std::string& part) {
  const std::string value = part.substr(part.find('=') + 1);
  const bool word =
      !value.empty() && value[0] >= 'a' && value[0] <= 'z' && value != "true" && value != "false";
  return word ? value : part;
}

std::size_t widest(const std::vector<std::string>& texts) {
  std::size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, shown_width(text));
  return width;
}

}  // namespace

std::size_t shown_width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void set_labels(std::vector<Group>& groups) {
  std::vector<std::vector<std::string>> names;
  std::vector<std::size_t> chosen(groups.size(), 0);
  for (const Group& group : groups) names.push_back(candidates(group));
  for (bool again = true; again;) {  // where two have one name, both take their next one
    again = false;
    std::map<std::string, std::vector<std::size_t>> owners;
    for (std::size_t g = 0; g < groups.size(); ++g)
      owners[names[g][chosen[g]] + count_text(groups[g])].push_back(g);
    for (const auto& [name, sharing] : owners) {
      for (const std::size_t g : sharing) {
        if (sharing.size() < 2 || chosen[g] + 1 == names[g].size()) continue;
        ++chosen[g];
        again = true;
      }
    }
  }
  for (std::size_t g = 0; g < groups.size(); ++g)
    groups[g].label = names[g][chosen[g]] + count_text(groups[g]);
}

std::vector<std::string> table_labels(const std::vector<Group>& groups, std::vector<std::string>& shared) {
  std::vector<std::string> full;
  std::vector<std::vector<std::string>> parts;
  for (const Group& group : groups) {
    full.push_back(printable(group.label));
    parts.push_back(parts_of(label_without_count(group)));
  }
  if (groups.size() < 2 || widest(full) <= comfortable) return full;

  std::vector<std::string> in_all;
  for (const std::string& part : parts[0]) {
    if (std::all_of(parts.begin(), parts.end(), [&](const auto& of) { return contains(of, part); }))
      in_all.push_back(part);
  }
  const auto joined = [&](bool bare_words) {
    std::vector<std::string> labels;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::string label;
      for (const std::string& part : parts[g]) {
        if (!contains(in_all, part)) label += (label.empty() ? "" : "_") + (bare_words ? bare(part) : part);
      }
      labels.push_back(label.empty() ? full[g] : printable(label + count_text(groups[g])));
    }
    return labels;
  };
  std::vector<std::string> labels = full;
  if (!in_all.empty() && all_differ(joined(false))) {
    labels = joined(false);
    for (const std::string& part : in_all) shared.push_back(printable(part));
  } else {
    in_all.clear();
  }
  if (widest(labels) > widest_label && all_differ(joined(true))) labels = joined(true);
  std::vector<std::string> short_ones;
  for (const std::string& label : labels) short_ones.push_back(cut(label, widest_label));
  return all_differ(short_ones) ? short_ones : labels;
}

std::vector<std::string> remark_labels(const std::vector<Group>& groups,
                                       const std::vector<std::string>& table) {
  std::vector<std::string> names;
  for (std::size_t g = 0; g < groups.size(); ++g)
    names.push_back(table[g].substr(0, table[g].size() - count_text(groups[g]).size()));
  return all_differ(names) ? names : table;
}

}  // namespace normscope
