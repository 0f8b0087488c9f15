#include "config/load.h"

#include <algorithm>
#include <filesystem>
#include <ranges>
#include <set>

#include "config/dump.h"
#include "config/fields.h"
#include "core/error.h"
#include "io/file.h"
#include "io/utf8.h"

namespace normscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* topic = "config";

// The last value given for a key.
struct Setting {
  Json value;
  std::string where;  // the file, or "--set"
};

// Members of a config that are no keys.
const std::set<std::string> no_keys = {"$schema", "extends", derived_keys, idle_keys,
                                       text("model.", pattern_blocks)};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

// True for an object that holds keys: "model", "model.init".
bool is_section(std::string_view key) {
  return std::ranges::any_of(fields(), [&](const Field& f) { return f.key.starts_with(text(key, '.')); });
}

// "; did you mean configs/quickstart.json?" for a file that does not exist.
std::string config_meant(const fs::path& path) {
  std::error_code ignored;
  std::map<std::string, std::string> configs;  // by stem
  for (const fs::path& folder : {path.parent_path(), fs::path("."), fs::path("configs")}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      const fs::path file = entry.path().lexically_normal();
      if (file.extension() == ".json") configs.try_emplace(file.stem(), file);
    }
  }
  const auto meant = configs.find(nearest(path.stem().string(), std::views::keys(configs)));
  return meant == configs.end() ? "" : "; did you mean " + meant->second + "?";
}

// The file that `extends` names: relative to `config`, then to the working directory.
fs::path find_base(const Json& written, const fs::path& config) {
  const std::string where = " (" + config.string() + ")";
  const std::optional<std::string> path = optional_path().read(written);
  if (!path || path->empty()) refuse(topic, "extends: ", type_error(written, "the file of a config"), where);
  const fs::path beside = (config.parent_path() / *path).lexically_normal();
  for (const fs::path& file : {beside, fs::path(*path).lexically_normal()}) {
    if (is_file(file)) return file;
  }
  refuse(topic, "extends: there is no file ", beside.string(), config_meant(beside), where);
}

// The absolute path, with links resolved except in its last part: the system follows a link before "..".
std::string absolute_path(const fs::path& path) {
  std::error_code error;  // for example, links that form a circle
  const fs::path whole = fs::absolute(path), folder = fs::weakly_canonical(whole.parent_path(), error);
  return (error ? whole : folder / whole.filename()).string();
}

// Adds candidate locations of a corpus that was moved together with its run: each suffix of the recorded
// path, longest first, under the run's folder and each of its parents. `file` is in the run's folder.
void add_places_of_moved(const fs::path& path, const fs::path& file, std::vector<fs::path>& places) {
  const fs::path run = fs::path(absolute_path(file)).parent_path();
  for (fs::path end = path.relative_path(); !end.empty() && end != ".";
       end = end.lexically_relative(*end.begin())) {
    for (fs::path folder = run; folder.has_relative_path(); folder = folder.parent_path())
      places.push_back(folder / end);
  }
}

// Collects the settings of files and --set options, then applies them to the defaults.
class Loader {
 public:
  explicit Loader(const LoadOptions& options) : options_(options) {}

  // Adds the settings of the configs that a file extends, then its own, which replace them.
  void add_file(const fs::path& file, const Json& root, int depth = 1) {
    constexpr int max_files = 16;
    const std::string name = file.string();
    loaded_.files.push_back(name);
    if (!root.is_object()) refuse(topic, name, ": ", type_error(root, "an object: {\"model\": {...}, ...}"));
    if (root.contains("base") && (root.contains("grid") || root.contains("cases")))
      refuse(topic, name, ": is a sweep, not a config; run it with scripts/sweep.py ", name);
    if (root.contains("extends")) {
      if (depth == max_files)
        refuse(topic, "extends: a circle, or more than ", max_files, " configs (", name, ")");
      const fs::path base = find_base(root["extends"], file);
      add_file(base, read_json(base.string(), topic), depth + 1);
    }
    listed_idle_ = root.value(idle_keys, Json::array());
    add_members(root, "", name);
    listed_idle_.clear();
  }

  void add_option(const std::string& option) {
    const std::size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0)
      return problem("--set", "", type_error(option, "KEY=VALUE, such as model.norm=rmsnorm"));
    const std::string key = option.substr(0, equals), value = option.substr(equals + 1);
    add(key, {json_or_string(value, "--set " + key, topic), "--set"});
  }

  // Throws all problems as one Error.
  Loaded resolve(const fs::path& file) {
    for (const Field& field : fields()) resolve_key(field, file);
    reset_idle_keys();
    for (const Field& field : fields()) report_if_idle(field);
    report_ignored();
    check_combinations();
    find_texts();
    if (!lines_.empty()) throw Error(Exit::usage, join(lines_, "\n"));
    return std::move(loaded_);
  }

 private:
  // Adds the setting of the dotted `key`; a section member by member.
  void add(const std::string& key, const Setting& setting) {
    if (std::ranges::count(listed_idle_, Json(key))) {
      ignored_[key] = setting;
    } else if (const Field* field = find_field(key)) {
      settings_[key] = setting;
      if (field->takes_auto && setting.value == "auto") settings_.erase(key);
      std::erase_if(settings_, [&](const auto& other) {  // its default applies again
        return find_field(other.first)->follows == key && other.second.where != setting.where;
      });
    } else if (is_section(key) && setting.value.is_object()) {
      add_members(setting.value, key + ".", setting.where);
    } else if (is_section(key)) {
      problem(key, setting.where, type_error(setting.value, "an object of keys"));
    } else {
      const std::string meant = nearest_key(key);
      problem(
          key, setting.where,
          "unknown key; " + (meant.empty() ? "`normscope config` lists all" : "did you mean " + meant + "?"));
    }
  }

  void add_members(const Json& object, const std::string& prefix, const std::string& where) {
    for (const auto& [name, member] : object.items()) {
      if (no_keys.contains(prefix + name)) continue;
      if (name.find('.') == name.npos)
        add(prefix + name, {member, where});
      else  // "model.norm" would pass for the key of an inner section
        problem(prefix + name, where, "unknown key; a key with a dot is written as an object in an object");
    }
  }

  // Sets the key's value: the given one, or the default, which may depend on the keys of earlier rows.
  void resolve_key(const Field& field, const fs::path& file) {
    std::string& origin = loaded_.origins[field.key];
    const auto given = settings_.find(field.key);
    if (given != settings_.end()) {
      origin = given->second.where;
      return set(field, given->second.value, origin);
    }
    if (field.required && options_.need_data) {
      return problem(field.key, "", text("missing; expected ", field.allowed, " (", field.doc, ")"));
    }
    origin = field.default_to.words.empty() ? "default" : "default: " + field.default_to.words;
    if (field.required) return;
    if (field.key == "name") loaded_.config.name = file.stem().string();
    if (field.default_to.apply) field.default_to.apply(loaded_.config);
    // A derived default can be out of range: 4*d_model if d_model is near its limit.
    set(field, field.get(loaded_.config), origin);
  }

  // Gives each key without effect the value that it takes then. Values that a Need names come first, because
  // conditions of other keys read them: a placement without norms makes `norm` none, and then `norm_eps` has
  // no effect either. The other keys get their defaults after that.
  void reset_idle_keys() {
    for (const Field& field : fields()) {
      const Need* unmet = field.unmet_need(loaded_.config);
      if (unmet && !unmet->idle_value.is_null()) field.set(loaded_.config, unmet->idle_value);
    }
    for (const Field& field : fields()) {
      const Need* unmet = field.unmet_need(loaded_.config);
      if (unmet && unmet->idle_value.is_null()) field.set_default(loaded_.config);
    }
  }

  // If the key has no effect, adds that to its origin, and reports a value that was given for it in vain.
  void report_if_idle(const Field& field) {
    const Need* unmet = field.unmet_need(loaded_.config);
    if (!unmet) return;
    const std::string& why = unmet->condition.reason;
    loaded_.origins[field.key] += ", no effect: " + why;
    const auto given = settings_.find(field.key);
    if (given != settings_.end()) report_in_vain(field, given->second, why);
  }

  // Reports values that a resolved config has for keys in its `$idle`, if they are not the values of these
  // keys: they were edited, or another setting gave the key its effect back.
  void report_ignored() {
    for (const auto& [key, ignored] : ignored_) {
      const Field* field = settings_.contains(key) ? nullptr : find_field(key);
      if (field) report_in_vain(*field, ignored, text(idle_keys, " lists it"));
    }
  }

  // A base file gives values to its own variants: those that this config makes idle are no mistake.
  void report_in_vain(const Field& field, const Setting& given, const std::string& why) {
    const bool is_base = given.where != "--set" && given.where != loaded_.files[0];
    if (given.value != field.get(loaded_.config) && !is_base)
      loaded_.without_effect.push_back(text(field.key, " (", given.where, ": ", why, ")"));
  }

  void set(const Field& field, const Json& value, const std::string& where) {
    if (const std::string what = field.set(loaded_.config, value); !what.empty())
      problem(field.key, where, what);
  }

  // Checks combinations of keys, unless one of the values is wrong by itself.
  void check_combinations() {
    for (const ConfigError& error : check_config(loaded_.config)) {
      if (std::ranges::any_of(error.keys, [&](const auto& key) { return failed_.contains(key); })) continue;
      // The first key may have its default; then the file that sets another one of them helps more.
      const auto given =
          std::ranges::find_if(error.keys, [&](const auto& key) { return settings_.contains(key); });
      problem(error.keys[0], given != error.keys.end() ? settings_.at(*given).where : "", error.what);
    }
  }

  // Makes the paths of texts absolute.
  void find_texts() {
    for (const Field& field : fields()) {
      if (field.role != KeyRole::text) continue;
      Json paths = as_list(field.get(loaded_.config));
      for (Json& path : paths) {
        if (path != "") path = find_text(with_home(path), field.key, settings_.at(field.key).where);
      }
      field.set(loaded_.config, as_entry(paths));
    }
  }

  // The absolute path, looked up from the folder of the config that names it, then from the working
  // directory.
  std::string find_text(const fs::path& written, const std::string& key, const std::string& where) {
    std::vector<fs::path> places = {fs::path(where).parent_path() / written, written};
    if (options_.may_have_moved && where != "--set") add_places_of_moved(written, where, places);
    const auto found = std::ranges::find_if(places, is_file);
    const std::string text_path = absolute_path(found == places.end() ? places[0] : *found);
    std::error_code ignored;
    if (!is_utf8(text_path)) {
      problem(key, where, text_path + ": the path is not UTF-8, so no config can hold it");
    } else if (options_.need_data && fs::is_directory(text_path, ignored)) {
      problem(key, where, text_path + " is a folder; expected a text file, or a list of them");
    } else if (options_.need_data && found == places.end()) {
      const std::string here = absolute_path(written);
      const std::string missing = here == text_path ? here : "neither " + text_path + " nor " + here;
      std::string advice;
      if (options_.may_have_moved) advice = "; say where it is with --set " + key + "=FILE";
      if (written.filename() == "tinyshakespeare.txt")
        advice = "; scripts/get_tinyshakespeare.sh downloads it";
      problem(key, where, "no such file: " + missing + advice);
    }
    return text_path;
  }

  // [config] key: what (where)
  void problem(const std::string& key, const std::string& where, const std::string& what) {
    failed_.insert(key);
    lines_.push_back(
        text('[', topic, "] ", key.substr(0, 100), ": ", what, where.empty() ? "" : " (" + where + ")"));
  }

  const LoadOptions& options_;
  std::map<std::string, Setting> settings_;  // by dotted key
  std::map<std::string, Setting> ignored_;   // values of keys that their file lists in `$idle`
  Json listed_idle_ = Json::array();         // `$idle` of the file that is read
  Loaded loaded_;
  std::set<std::string> failed_;  // keys with a wrong or missing value
  std::vector<std::string> lines_;
};

Loaded load(const fs::path& file, const Json& root, const std::vector<std::string>& sets,
            const LoadOptions& options) {
  Loader loader(options);
  loader.add_file(file, root);
  for (const std::string& option : sets) loader.add_option(option);
  return loader.resolve(file);
}

}  // namespace

Loaded load_config(const std::string& file, const std::vector<std::string>& sets,
                   const LoadOptions& options) {
  std::error_code error;  // reading a file that cannot be looked up gives the better message
  if (!fs::exists(file, error) && !error) refuse(topic, "there is no file ", file, config_meant(file));
  if (fs::is_directory(file, error))
    refuse(topic, file, ": is a folder; expected a file, such as ", file, "/config.json");
  return load(file, read_json(file, topic), sets, options);
}

Loaded load_config_text(std::string_view json_text, const std::string& label,
                        const std::vector<std::string>& sets, const LoadOptions& options) {
  return load(label, parse_json(json_text, label, topic), sets, options);
}

}  // namespace normscope
