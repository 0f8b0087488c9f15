#include "config/load.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "config/field_types.h"
#include "core/error.h"
#include "core/text.h"
#include "io/utf8.h"

namespace normscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* topic = "config";

// The last value given for a key.
struct Setting {
  Json value;
  std::string where;
  fs::path folder;  // of relative paths
  int layer;        // 0: the first base; later files, then --set, override it
};

struct SourceFile {
  fs::path path;
  Json root;
};

// "; did you mean configs/quickstart.json?" for a file that does not exist.
std::string config_meant(const fs::path& path) {
  std::error_code ignored;
  std::vector<std::string> configs;
  for (const fs::path& folder : {path.parent_path(), fs::path("."), fs::path("configs")}) {
    for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
      if (entry->path().extension() == ".json") configs.push_back(entry->path().lexically_normal().string());
    }
  }
  const auto same_name = std::ranges::find(configs, path.stem(), [](const fs::path& c) { return c.stem(); });
  const std::string meant = same_name != configs.end() ? *same_name : nearest(path.string(), configs);
  return meant.empty() ? "" : "; did you mean " + meant + "?";
}

// The file that `extends` names: relative to the config in `folder`, then to the working directory.
fs::path find_base(const Json& written, const SourceFile& config) {
  const auto stop = [&](const auto&... what) {
    refuse(topic, "extends: ", what..., " (", config.path.string(), ")");
  };
  const std::optional<std::string> path = optional_path().read(written);
  if (!path || path->empty()) stop(type_error(written, "the file of a config"));
  std::error_code ignored;
  const fs::path beside = (config.path.parent_path() / *path).lexically_normal();
  for (const fs::path& file : {beside, fs::path(*path).lexically_normal()}) {
    if (fs::is_regular_file(file, ignored)) return file;
  }
  stop("there is no file ", beside.string(), config_meant(beside));
  return {};
}

// The config and those it extends, each followed by its base.
std::vector<SourceFile> read_chain(const fs::path& file, Json first) {
  constexpr std::size_t max_files = 16;
  std::vector<SourceFile> chain = {{file, std::move(first)}};
  for (;;) {
    const SourceFile& last = chain.back();
    const std::string name = last.path.string();
    if (!last.root.is_object())
      refuse(topic, name, ": ", type_error(last.root, "an object: {\"model\": {...}, ...}"));
    if (last.root.contains("base") && (last.root.contains("grid") || last.root.contains("cases")))
      refuse(topic, name, ": is a sweep, not a config; run it with scripts/sweep.py ", name);
    const auto base = last.root.find("extends");
    if (base == last.root.end()) return chain;
    if (chain.size() == max_files)
      refuse(topic, "extends: more than ", max_files, " configs, each extending the next; a circle? (", name,
             ")");
    const fs::path next = find_base(*base, last);
    chain.push_back({next, read_json(next.string(), topic)});
  }
}

// Collects the settings of files and --set options, then applies them to the defaults.
class Loader {
 public:
  explicit Loader(const LoadOptions& options) : options_(options) {}

  // Later settings replace earlier ones.
  void add_file(const SourceFile& file) {
    add_members(file.root, "", {nullptr, file.path.string(), file.path.parent_path(), layers_++});
  }

  void add_option(const std::string& option) {
    const std::size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0)
      return problem("--set", "", type_error(option, "KEY=VALUE, such as model.norm=rmsnorm"));
    const std::string key = option.substr(0, equals), value = option.substr(equals + 1);
    try {
      add(key, {json_or_string(value, "--set " + key, topic), "--set", {}, set_layer});
    } catch (const Error& error) {
      lines_.push_back(error.what());
    }
  }

  // Throws all problems as one Error.
  Loaded resolve(const fs::path& file) {
    for (const Field& field : fields()) resolve_key(field, file);
    settle(loaded_.config);
    for (const Field& field : fields()) note_if_idle(field);
    check_combinations();
    find_texts();
    if (!lines_.empty()) throw Error(Exit::usage, join(lines_, "\n"));
    return std::move(loaded_);
  }

 private:
  // Adds the setting of the dotted `key`; a section member by member.
  void add(const std::string& key, const Setting& setting) {
    if (find_field(key)) {
      settings_[key] = setting;
    } else if (is_section(key) && setting.value.is_object()) {
      add_members(setting.value, key + ".", setting);
    } else {
      problem(key, setting.where,
              is_section(key) ? type_error(setting.value, "an object of keys") : unknown_key(key));
    }
  }

  void add_members(const Json& object, const std::string& prefix, const Setting& from) {
    for (const auto& [name, member] : object.items()) {
      if (prefix.empty() && (name == "$schema" || name == "extends")) continue;
      if (name.find('.') == name.npos)
        add(prefix + name, {member, from.where, from.folder, from.layer});
      else  // "model.norm" would pass for the key of an inner section
        problem(prefix + name, from.where,
                "unknown key; a key with a dot is written as an object in an object");
    }
  }

  // Sets the key's value: the given one, or the default, which may depend on the keys before.
  void resolve_key(const Field& field, const fs::path& file) {
    std::string& origin = loaded_.origins[field.key];
    const auto given = settings_.find(field.key), followed = settings_.find(field.follows);
    const bool is_overridden = given != settings_.end() && followed != settings_.end() &&
                               followed->second.layer > given->second.layer;
    if (given != settings_.end() && !is_overridden) {
      origin = given->second.where;
      if (!field.takes_auto || given->second.value != "auto") return set(field, given->second.value, origin);
      origin += ", ";
    } else if (field.required && options_.need_data) {
      return problem(
          field.key, "",
          text("missing, and there is no default; it takes ", field.allowed, " (", field.doc, ")"));
    }
    const std::string words =
        field.default_to.words.empty() ? "default" : "default: " + field.default_to.words;
    origin += words;
    if (field.required) return;
    if (field.key == "name") loaded_.config.name = file.stem().string();
    if (field.default_to.apply) field.default_to.apply(loaded_.config);
    // A default computed from other keys can be out of range: 4*d_model where d_model is near its limit.
    set(field, field.get(loaded_.config), words);
  }

  void note_if_idle(const Field& field) {
    if (field.is_used(loaded_.config)) return;
    loaded_.origins[field.key] += ", no effect: " + field.used_if.idle_words;
    const auto given = settings_.find(field.key);
    if (given == settings_.end()) return;
    const Json& value = given->second.value;
    if (value != field.get(RunConfig{}) && value != field.used_if.idle_value)
      loaded_.without_effect.push_back(text(field.key, " (", field.used_if.idle_words, ")"));
  }

  void set(const Field& field, const Json& value, const std::string& where) {
    if (const std::string what = field.set(loaded_.config, value); !what.empty())
      problem(field.key, where, what);
  }

  // Checks combinations of keys, unless one of the values is wrong by itself.
  void check_combinations() {
    for (const ConfigError& error : check_config(loaded_.config)) {
      if (std::ranges::any_of(error.keys, [&](const auto& key) { return failed_.contains(key); })) continue;
      // The first key may have its default; the place where another one was given helps more.
      const auto given =
          std::ranges::find_if(error.keys, [&](const auto& key) { return settings_.contains(key); });
      problem(error.keys[0], given != error.keys.end() ? settings_.at(*given).where : "", error.what);
    }
  }

  // Makes the paths of texts absolute.
  void find_texts() {
    for (const auto& [key, setting] : settings_) {
      const Field& field = *find_field(key);
      if (field.role != KeyRole::text || failed_.contains(key)) continue;
      Json paths = setting.value.is_array() ? setting.value : Json::array({setting.value});
      for (Json& path : paths) {
        if (path != "") path = find_text(path, key, setting);
      }
      field.set(loaded_.config, setting.value.is_array() ? paths : paths[0]);
    }
  }

  // The absolute path: relative to the config that names it, else to the working directory; a text that is
  // not where it was may lie beside the config.
  std::string find_text(const std::string& written, const std::string& key, const Setting& setting) {
    std::error_code ignored;
    const auto is_file = [&](const fs::path& path) {
      return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
    };
    const fs::path beside = fs::absolute(setting.folder / written).lexically_normal();
    const fs::path here = fs::absolute(written).lexically_normal();
    const fs::path name_alone = fs::path(written).filename();
    const fs::path moved = name_alone.empty() ? beside : fs::absolute(setting.folder / name_alone);
    const fs::path chosen = is_file(beside) ? beside : is_file(here) ? here : is_file(moved) ? moved : beside;
    const std::string name = chosen.string();
    if (!is_utf8(chosen.string())) {
      problem(key, setting.where, name + ": the path is not UTF-8, so no config can hold it");
    } else if (options_.need_data && fs::is_directory(chosen, ignored)) {
      problem(key, setting.where, name + " is a folder; expected a text file, or a list of them");
    } else if (options_.need_data && !is_file(chosen)) {
      const bool is_shakespeare = chosen.filename() == "tinyshakespeare.txt";
      problem(key, setting.where,
              text("no such file: ", here == beside ? name : "neither " + name + " nor " + here.string(),
                   is_shakespeare ? "; scripts/get_tinyshakespeare.sh brings it" : ""));
    }
    return chosen.string();
  }

  // [config] key: what (where)
  void problem(const std::string& key, const std::string& where, const std::string& what) {
    failed_.insert(key);
    lines_.push_back(
        text('[', topic, "] ", key.substr(0, 100), ": ", what, where.empty() ? "" : " (" + where + ")"));
  }

  static constexpr int set_layer = 1000;  // every --set is above all files

  const LoadOptions& options_;
  int layers_ = 0;
  std::map<std::string, Setting> settings_;  // by dotted key
  Loaded loaded_;
  std::set<std::string> failed_;  // keys with a wrong or missing value
  std::vector<std::string> lines_;
};

Loaded load(const fs::path& file, Json root, const std::vector<std::string>& sets,
            const LoadOptions& options) {
  Loader loader(options);
  const std::vector<SourceFile> chain = read_chain(file, std::move(root));
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) loader.add_file(*link);  // the base first
  for (const std::string& option : sets) loader.add_option(option);
  return loader.resolve(file);
}

}  // namespace

const Field* find_field(std::string_view key) {
  const auto found = std::ranges::find(fields(), key, &Field::key);
  return found == fields().end() ? nullptr : &*found;
}

bool is_section(std::string_view key) {
  return std::ranges::any_of(fields(), [&](const Field& f) { return f.key.starts_with(text(key, '.')); });
}

std::string nearest_key(std::string_view word) {
  std::string plain(word);
  std::ranges::replace(plain, '-', '_');
  const std::string leaf(leaf_name(plain));
  for (const Field& field : fields()) {
    if (plain == field.key || leaf == leaf_name(field.key)) return field.key;
  }
  for (const Field& field : fields()) {
    if (std::ranges::count(field.other_names, leaf)) return field.key;
  }
  std::vector<std::string> whole = {"model", "model.init", "data", "train", "eval", "log", "checkpoint"};
  std::vector<std::string> leaves;
  for (const Field& field : fields()) {
    whole.push_back(field.key);
    leaves.emplace_back(leaf_name(field.key));  // the section may be wrong or missing
  }
  if (const std::string key = nearest(plain, whole); !key.empty()) return key;
  const auto found = std::ranges::find(leaves, nearest(leaf, leaves));
  return found == leaves.end() ? "" : fields()[found - leaves.begin()].key;
}

std::string unknown_key(std::string_view key) {
  if (is_section(key)) return text("is a section; expected a key in it, written ", key, ".KEY");
  const std::string meant = nearest_key(key);
  return meant.empty() ? "unknown key; `normscope config` lists all"
                       : "unknown key; did you mean " + meant + "?";
}

std::string default_text(const Field& field) {
  if (field.required) return "required";
  if (!field.default_to.words.empty()) return field.default_to.words;
  const Json value = field.get(RunConfig{});
  if (value.is_number_float()) return text(value.get<double>());  // 0, where JSON writes 0.0
  return value.is_string() && value != "" ? value.get<std::string>() : value.dump();
}

Loaded load_config(const std::string& file, const std::vector<std::string>& sets,
                   const LoadOptions& options) {
  std::error_code error;  // reading a file that cannot be looked up gives the better message
  if (!fs::exists(file, error) && !error) refuse(topic, "there is no file ", file, config_meant(file));
  if (fs::is_directory(file, error))
    refuse(topic, file, ": is a folder; expected a file, such as ",
           (fs::path(file) / "config.json").string());
  return load(file, read_json(file, topic), sets, options);
}

Loaded load_config_text(std::string_view json_text, const std::string& label,
                        const std::vector<std::string>& sets, const LoadOptions& options) {
  return load(label, parse_json(json_text, label, topic), sets, options);
}

}  // namespace normscope
