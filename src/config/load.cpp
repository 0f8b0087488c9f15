#include "config/load.h"

#include <algorithm>
#include <set>

#include "config/field_types.h"
#include "config/problems.h"
#include "core/text.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* topic = "config";

// The last value written for a key.
struct Setting {
  json value;
  std::string where;
  fs::path folder;  // of relative paths
};

struct SourceFile {
  fs::path path;
  JsonDocument source;
};

// "; did you mean configs/quickstart.json?" for a file that does not exist. A config of the same name in
// another folder or with another ending comes first.
std::string config_meant(const std::string& path, const fs::path& folder) {
  std::error_code ignored;
  std::vector<std::string> there;
  for (const fs::path& place :
       {folder.empty() ? fs::path(".") : folder, fs::path("."), fs::path("configs")}) {
    for (fs::directory_iterator entry(place, ignored), end; entry != end; entry.increment(ignored)) {
      if (entry->path().extension() == ".json") there.push_back(entry->path().lexically_normal().string());
    }
  }
  const auto same_name =
      std::ranges::find(there, fs::path(path).stem(), [](const fs::path& other) { return other.stem(); });
  const std::string meant = same_name != there.end() ? *same_name : nearest(path, there);
  return meant.empty() ? "" : "; did you mean " + escape_controls(meant) + "?";
}

// The config file that another file in `folder` names: relative to that file, else to the working directory,
// like data files. Usage Error `extends: there is no file ...; did you mean ...? (WHERE)`.
fs::path find_config(const json& written, const fs::path& folder, const std::string& where) {
  const auto fail_here = [&](const auto&... what) { refuse(topic, "extends: ", what..., " (", where, ")"); };
  const std::optional<std::string> path = optional_path().read(written);
  if (!path) fail_here(type_error(written, "the file of a config"));
  std::error_code ignored;
  const fs::path beside = (folder / *path).lexically_normal();
  for (const fs::path& file : {beside, fs::path(*path).lexically_normal()}) {
    if (fs::is_regular_file(file, ignored)) return file;
  }
  fail_here("there is no file ", escape_controls(beside.string()), config_meant(*path, folder));
  return {};
}

// The config and those it extends, each followed by its base.
std::vector<SourceFile> read_chain(const fs::path& file, JsonDocument source) {
  std::vector<SourceFile> chain;
  chain.push_back({file, std::move(source)});
  std::error_code ignored;  // of the first file where that is a pipe, which nothing can extend
  std::set<fs::path> seen = {fs::weakly_canonical(file, ignored)};
  for (;;) {
    const auto& [path, last] = chain.back();
    const json& root = last.root();
    if (!root.is_object())
      refuse(topic, last.name(), ": ", type_error(root, "an object: {\"model\": {...}, ...}"));
    if (root.contains("base") && (root.contains("grid") || root.contains("cases") || root.contains("seeds")))
      refuse(topic, last.name(), ": is a sweep, not a config; run it with scripts/sweep.py ",
             escape_controls(path.string()));
    const auto found = root.find("extends");
    if (found == root.end()) return chain;
    const std::string where = last.where(*found);
    const fs::path base = find_config(*found, path.parent_path(), where);
    if (!seen.insert(fs::weakly_canonical(base, ignored)).second) {
      std::string circle;
      for (const SourceFile& link : chain) circle += link.source.name() + " -> ";
      refuse(topic, "extends: a circle: ", circle, escape_controls(base.string()), " (", where, ")");
    }
    chain.push_back({base, JsonDocument::read(base, topic)});
  }
}

// The absolute path of a data file: relative to the config that names it, else to the working directory. A
// file that is in neither is a problem if it must exist.
std::string find_data(const std::string& written, const std::string& key, const Setting& setting,
                      bool must_exist, Problems& problems) {
  std::error_code ignored;
  const auto is_file = [&](const fs::path& path) {
    return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
  };
  const fs::path beside = fs::absolute(setting.folder / written).lexically_normal();
  const fs::path here = fs::absolute(written).lexically_normal();
  const fs::path chosen = is_file(beside) || !is_file(here) ? beside : here;
  const std::string name = escape_controls(chosen.string());
  if (!valid_utf8(chosen.string())) {
    problems.add(key, setting.where, name, ": the path is not UTF-8, so no config can hold it");
  } else if (must_exist && fs::is_directory(chosen, ignored)) {
    problems.add(key, setting.where, name, " is a folder; expected a text file, or a list of them");
  } else if (must_exist && !is_file(chosen)) {
    const bool is_shakespeare = chosen.filename() == "tinyshakespeare.txt";
    problems.add(key, setting.where, "no such file: ",
                 here == beside ? name : "neither " + name + " nor " + escape_controls(here.string()),
                 is_shakespeare ? "; scripts/get_tinyshakespeare.sh brings it" : "");
  }
  return chosen.string();
}

// Whether the value is the key's default, or the one that it has where it has no effect.
bool is_default(const Field& field, const nlohmann::ordered_json& value) {
  return value == field.get(RunConfig{}) || value == field.else_value;
}

// Collects the settings of files and --set options, then applies them to the defaults.
class Loader {
 public:
  explicit Loader(const LoadOptions& options) : options_(options) {}

  // Later settings replace earlier ones.
  void add_file(const SourceFile& file) { add_members(file.source.root(), "", &file); }

  void add_option(const std::string& option) {
    const std::size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0)
      return problems_.add("--set", "", type_error(option, "KEY=VALUE, such as model.norm=rmsnorm"));
    const std::string key = option.substr(0, equals), value = option.substr(equals + 1);
    if (!valid_utf8(option)) return problems_.add(key, "--set", "not UTF-8");
    try {
      add(json_or_string(value, "--set " + key, topic), key, nullptr);
    } catch (const Error& error) {
      problems_.add_line(error.what());
    }
  }

  // Throws all problems as one Error.
  Loaded resolve(const fs::path& file) {
    for (const Field& field : fields()) resolve_key(field, file);
    std::vector<std::string> without_effect;
    for (const Field* field : reset_unused(config_)) origins_[field->key] = "settled: " + field->unused_words;
    for (const Field& field : fields()) {
      const auto given = settings_.find(field.key);
      const bool is_given = given != settings_.end(), is_used = field.used_in(config_);
      if (field.else_value.is_null() && is_given && !is_used)
        origins_[field.key] += ", without effect: " + field.unused_words;
      if (is_given && !is_used && !is_default(field, given->second.value))
        without_effect.push_back(text(field.key, " (", field.unused_words, ")"));
      const bool must_be_given = options_.resolved && (field.required || !field.default_words.empty());
      if (must_be_given && !is_given && is_used)
        problems_.add(field.key, "", "missing; the config of a run says it");
    }
    check_combinations();
    find_all_data();
    problems_.throw_if_any();
    return {std::move(config_), std::move(origins_), std::move(without_effect)};
  }

 private:
  // Adds the value of the dotted `key`, of a file or else of --set; a section member by member.
  void add(const json& value, const std::string& key, const SourceFile* file) {
    const auto where = [&] { return file ? file->source.where(value) : "--set"; };
    if (find_field(key)) {
      settings_[key] = {value, where(), file ? file->path.parent_path() : fs::path()};
    } else if (is_section(key) && value.is_object()) {
      add_members(value, key + ".", file);
    } else if (!problems_.only_count()) {
      problems_.add(key, where(),
                    is_section(key) ? type_error(value, "an object of keys") : unknown_key(key));
    }
  }

  void add_members(const json& object, const std::string& prefix, const SourceFile* file) {
    for (const auto& [name, member] : object.items()) {
      if (prefix.empty() && (name == "$schema" || name == "extends")) continue;
      if (name.find('.') == name.npos) {
        add(member, prefix + name, file);
      } else if (!problems_.only_count()) {  // "model.norm" would pass for the key of an inner section
        problems_.add(prefix + name, file ? file->source.where(member) : "--set",
                      "unknown key; a key with a dot is written as an object in an object");
      }
    }
  }

  // Sets the key's value: the given one, or the default, which may depend on the keys before.
  void resolve_key(const Field& field, const fs::path& file) {
    const auto given = settings_.find(field.key);
    if (given != settings_.end()) {
      const auto& [value, where, folder] = given->second;
      origins_[field.key] = where;
      if (!field.takes_auto || value != "auto") return set(field, value, where);
    } else if (field.required && options_.need_data) {
      failed_.insert(field.key);
      return problems_.add(field.key, "", "missing, and there is no default; it takes ", field.allowed, " (",
                           field.doc, ")");
    }
    apply_default(field, file);
  }

  void set(const Field& field, const json& value, const std::string& where) {
    const std::string problem = field.set(config_, value);
    if (problem.empty()) return;
    problems_.add(field.key, where, problem);
    failed_.insert(field.key);
  }

  void apply_default(const Field& field, const fs::path& file) {
    const std::string words = field.default_words.empty() ? "default" : "default: " + field.default_words;
    std::string& origin = origins_[field.key];
    origin = origin.empty() ? words : origin + ", " + words;  // "auto" is written somewhere
    if (field.required) return;
    if (field.key == "name") config_.name = file.stem().string();
    if (field.apply_default) field.apply_default(config_);
    // A default computed from other keys can be out of range: 4*d_model where d_model is near its limit.
    set(field, field.get(config_), words);
  }

  // Checks combinations of keys, unless one of the values is wrong by itself.
  void check_combinations() {
    for (const ConfigError& error : check_config(config_)) {
      if (std::ranges::any_of(error.keys, [&](const auto& key) { return failed_.contains(key); })) continue;
      // The first key may have its default; the place where another one was written helps more.
      const auto written =
          std::ranges::find_if(error.keys, [&](const auto& key) { return settings_.contains(key); });
      const bool found = written != error.keys.end();
      problems_.add(error.keys[0], found ? settings_.at(*written).where : "", error.what);
    }
  }

  void find_all_data() {
    for (const auto& [key, setting] : settings_) {
      const Field& field = *find_field(key);
      if (!field.names_text || failed_.contains(key)) continue;
      json paths = setting.value.is_array() ? setting.value : json::array({setting.value});
      for (json& path : paths) {
        if (path != "") path = find_data(path, key, setting, options_.need_data, problems_);
      }
      field.set(config_, setting.value.is_array() ? paths : paths[0]);
    }
  }

  const LoadOptions& options_;
  std::map<std::string, Setting> settings_;  // by dotted key
  Problems problems_{topic};
  RunConfig config_;
  std::map<std::string, std::string> origins_;
  std::set<std::string> failed_;  // keys with a wrong or missing value
};

Loaded load(const fs::path& file, JsonDocument source, const std::vector<std::string>& sets,
            const LoadOptions& options) try {
  Loader loader(options);
  const std::vector<SourceFile> chain = read_chain(file, std::move(source));
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) loader.add_file(*link);  // the base first
  for (const std::string& option : sets) loader.add_option(option);
  return loader.resolve(file);
} catch (const fs::filesystem_error& error) {
  refuse(topic, escape_controls(error.path1().string()), ": ", error.code().message());
}

}  // namespace

Loaded load_config(const fs::path& file, const std::vector<std::string>& sets, const LoadOptions& options) {
  std::error_code error;  // reading a file that cannot be looked up gives the better message
  if (!fs::exists(file, error) && !error)
    refuse(topic, "there is no file ", escape_controls(file.string()), config_meant(file.string(), "."));
  return load(file, JsonDocument::read(file, topic), sets, options);
}

Loaded load_config_text(std::string json_text, const fs::path& label, const std::vector<std::string>& sets,
                        const LoadOptions& options) {
  return load(label, JsonDocument::parse(std::move(json_text), label.string(), topic), sets, options);
}

}  // namespace normscope
