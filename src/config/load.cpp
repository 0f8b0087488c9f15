#include "config/load.h"

#include <algorithm>
#include <set>

#include "config/checks.h"
#include "config/fields.h"
#include "config/problems.h"
#include "core/nearest.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* topic = "config";

// A key as it was last written.
struct Setting {
  json value;
  std::string where;
  fs::path folder;  // relative paths count from here
};

using Settings = std::map<std::string, Setting>;

// Takes what files and --set options say into settings by dotted key; later ones replace earlier ones.
class Collector {
 public:
  Collector(Settings& settings, Problems& problems) : settings_(settings), problems_(problems) {}

  void add_file(const JsonDocument& source, const fs::path& folder) {
    add_members(source.root(), "", folder, [&](const json& member) { return source.where(member); });
  }

  void add_option(const std::string& option) {
    const std::size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0) {
      return problems_.add("--set", "", "got ", quote(option),
                           "; expected KEY=VALUE, such as model.norm=rmsnorm");
    }
    const std::string key = option.substr(0, equals), value = option.substr(equals + 1);
    if (!valid_utf8(option)) return problems_.add(key, "--set", "not UTF-8");
    const auto from_option = [](const json&) { return std::string("--set"); };
    try {
      add(JsonDocument::parse(value, "--set " + key, topic).root(), key, {}, from_option);
    } catch (const JsonSyntaxError&) {
      add(json(value), key, {}, from_option);  // what is not JSON is a string
    } catch (const Error& error) {
      problems_.add_line(error.what());
    }
  }

 private:
  // Adds `value`, written under the dotted `key`: a section member by member.
  template <class Where>
  void add(const json& value, const std::string& key, const fs::path& folder, const Where& where) {
    if (find_field(key)) {
      settings_[key] = {value, where(value), folder};
    } else if (!is_section(key)) {
      if (problems_.many()) return problems_.add_line({});
      const std::string meant = nearest_key(key);
      problems_.add(key, where(value), "unknown key; ",
                    meant.empty() ? "`normscope config` lists all" : "did you mean " + meant + "?");
    } else if (!value.is_object()) {
      problems_.add(key, where(value), "got ", quote(value), "; expected an object of keys");
    } else {
      add_members(value, key + ".", folder, where);
    }
  }

  template <class Where>
  void add_members(const json& object, const std::string& prefix, const fs::path& folder,
                   const Where& where) {
    for (const auto& [name, member] : object.items()) {
      if (prefix.empty() && (name == "$schema" || name == "extends")) continue;
      if (name.find('.') == std::string::npos) {
        add(member, prefix + name, folder, where);
      } else if (problems_.many()) {
        problems_.add_line({});
      } else {  // would pass for a key of an inner section, and so for a second one of the same name
        problems_.add(prefix + name, where(member),
                      "unknown key; a key with a dot is written as an object in an object");
      }
    }
  }

  Settings& settings_;
  Problems& problems_;
};

struct SourceFile {
  fs::path path;
  JsonDocument source;
};

// The file by one name, whatever the way to it; a pipe has none but the one it was given by.
fs::path identity(const fs::path& file) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(file, error);
  return error ? fs::absolute(file) : whole;
}

// The config and those it extends, each followed by its base.
std::vector<SourceFile> read_chain(const fs::path& file, JsonDocument source) {
  std::vector<SourceFile> chain;
  chain.push_back({file, std::move(source)});
  std::set<fs::path> seen = {identity(file)};
  for (;;) {
    const auto& [path, last] = chain.back();
    if (!last.root().is_object()) {
      refuse(topic, last.name(), ": got ", quote(last.root()),
             "; expected an object: {\"model\": {...}, ...}");
    }
    if (last.root().contains("base") && (last.root().contains("grid") || last.root().contains("seeds"))) {
      refuse(topic, last.name(), ": is a sweep, not a config; run it with normscope sweep ",
             escape_controls(path.string()));
    }
    const auto found = last.root().find("extends");
    if (found == last.root().end()) return chain;
    const auto stop = [&, where = last.where(*found)](const auto&... what) {
      refuse(topic, "extends: ", what..., " (", where, ")");
    };
    if (!found->is_string()) stop("got ", quote(*found), "; expected the file of another config");
    if (found->get_ref<const std::string&>().find('\0') != std::string::npos) {
      stop("a path cannot hold a NUL character");
    }
    const fs::path base =
        find_config(found->get<std::string>(), path.parent_path(), topic, "extends", last.where(*found));
    if (!seen.insert(identity(base)).second) {
      std::string circle;
      for (const SourceFile& link : chain) circle += link.source.name() + " -> ";
      stop("a circle: ", circle, escape_controls(base.string()));
    }
    chain.push_back({base, JsonDocument::read(base, topic)});
  }
}

// The file that a written path means, absolute: in the folder of the config that writes it, else in the
// working directory. Where it is in neither, that is a problem if it must exist.
std::string find_data(const std::string& written, const std::string& key, const Setting& setting,
                      bool must_exist, Problems& problems) {
  const auto is_file = [](const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
  };
  const fs::path beside = fs::absolute(setting.folder / written).lexically_normal();
  const fs::path here = fs::absolute(written).lexically_normal();
  const std::string chosen = (is_file(beside) || !is_file(here) ? beside : here).string();
  if (must_exist && !is_file(chosen)) {
    const std::string also = here == beside ? "" : " nor " + escape_controls(here.string());
    const bool shakespeare = fs::path(written).filename() == "tinyshakespeare.txt";
    if (fs::is_directory(chosen)) {
      problems.add(key, setting.where, escape_controls(chosen),
                   " is a folder; expected a text file, or a list of them");
    } else {
      problems.add(key, setting.where, "no such file: ", also.empty() ? "" : "neither ",
                   escape_controls(chosen), also,
                   shakespeare ? "; scripts/get_tinyshakespeare.sh brings it" : "");
    }
  } else if (!valid_utf8(chosen)) {
    problems.add(key, setting.where, escape_controls(chosen),
                 ": the path is not UTF-8, so no config can hold it");
  }
  return chosen;
}

void find_all_data(RunConfig& config, const Settings& settings, bool must_exist, Problems& problems) {
  if (const auto found = settings.find("data.path"); found != settings.end()) {
    for (std::string& path : config.data.path) {
      path = find_data(path, found->first, found->second, must_exist, problems);
    }
  }
  if (const auto found = settings.find("data.val_path");
      found != settings.end() && !config.data.val_path.empty()) {
    config.data.val_path = find_data(config.data.val_path, found->first, found->second, must_exist, problems);
  }
}

// Applies the settings to the defaults, row by row of the field table.
class Resolver {
 public:
  Resolver(const Settings& settings, const LoadOptions& options, Problems& problems)
      : settings_(settings), options_(options), problems_(problems) {}

  Loaded resolve(const fs::path& file) {
    for (const Field& field : fields()) {
      if (const auto given = settings_.find(field.key); given != settings_.end()) {
        take(field, given->second);
      } else if (options_.resolved && (field.required || !field.default_words.empty())) {
        problems_.add(field.key, "", "missing; the config of a run says it");
      } else if (field.required && options_.need_data) {
        problems_.add(field.key, "", "missing, and there is no default; it takes ", field.allowed, " (",
                      field.doc, ")");
        failed_.insert(field.key);
      }
    }
    for (const Field& field : fields()) {
      if (!given_.contains(field.key) && !failed_.contains(field.key)) take_default(field, file);
    }
    for (const Field* field : settle(config_)) origins_[field->key] = "settled: " + field->idle_words;
    for (const Field& field : fields()) {
      if (field.idle_value.is_null() && settings_.contains(field.key) && !field.used_in(config_))
        origins_[field.key] += ", without effect: " + field.idle_words;
    }
    complain();
    find_all_data(config_, settings_, options_.need_data, problems_);
    return {std::move(config_), std::move(origins_)};
  }

 private:
  void take(const Field& field, const Setting& setting) {
    origins_[field.key] = setting.where;
    if (field.takes_auto && setting.value == "auto") return;
    given_.insert(field.key);
    if (const std::string problem = field.set(config_, setting.value); !problem.empty()) {
      problems_.add(field.key, setting.where, problem);
      failed_.insert(field.key);
    }
  }

  void take_default(const Field& field, const fs::path& file) {
    const std::string words = field.default_words.empty() ? "default" : "default: " + field.default_words;
    std::string& origin = origins_[field.key];
    origin = origin.empty() ? words : origin + ", " + words;  // "auto" is written somewhere
    if (field.required) return;
    if (field.key == "name") config_.name = file.stem().string();
    if (field.apply_default) field.apply_default(config_);
    // What depends on others can come out of range: 4*d_model is too wide where d_model is near its limit.
    if (const std::string problem = field.set(config_, field.get(config_)); !problem.empty()) {
      problems_.add(field.key, words, problem);
      failed_.insert(field.key);
    }
  }

  // A combination is only judged where each of its values is sound.
  void complain() {
    for (const Complaint& complaint : check_config(config_)) {
      std::vector<std::string> keys = complaint.others;
      keys.insert(keys.begin(), complaint.key);
      if (std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return failed_.contains(key); }))
        continue;
      // The key to blame may be a default; then what was written about another one leads further.
      std::string where;
      for (const std::string& key : keys) {
        const auto written = settings_.find(key);
        if (where.empty() && written != settings_.end()) where = written->second.where;
      }
      problems_.add(complaint.key, where, complaint.what);
    }
  }

  const Settings& settings_;
  const LoadOptions& options_;
  Problems& problems_;
  RunConfig config_;
  std::map<std::string, std::string> origins_;
  std::set<std::string> given_;   // no default wanted
  std::set<std::string> failed_;  // known to be wrong
};

Loaded load(const fs::path& file, JsonDocument source, const std::vector<std::string>& sets,
            const LoadOptions& options) {
  Settings settings;
  Problems problems(topic);
  Collector collector(settings, problems);
  const std::vector<SourceFile> chain = read_chain(file, std::move(source));
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) {  // the base first, so that later ones win
    collector.add_file(link->source, link->path.parent_path());
  }
  for (const std::string& option : sets) collector.add_option(option);
  Loaded loaded = Resolver(settings, options, problems).resolve(file);
  problems.throw_if_any();
  return loaded;
}

// Runs `body`; what the standard library throws about paths that cannot be looked at becomes an Error.
template <class Body>
Loaded with_plain_errors(const Body& body) {
  try {
    return body();
  } catch (const fs::filesystem_error& error) {
    refuse(topic, escape_controls(error.path1().string()), ": ", error.code().message());
  }
}

}  // namespace

fs::path find_config(const std::string& written, const fs::path& folder, std::string_view for_topic,
                     std::string_view key, const std::string& where) {
  std::error_code ignored;
  const fs::path beside = (folder / written).lexically_normal();
  for (const fs::path& path : {beside, fs::path(written).lexically_normal()}) {
    if (fs::is_regular_file(path, ignored)) return path;
  }
  std::vector<std::string> there;
  for (const fs::path& place :
       {folder.empty() ? fs::path(".") : folder, fs::path("."), fs::path("configs")}) {
    for (fs::directory_iterator entry(place, ignored), end; entry != end; entry.increment(ignored)) {
      if (entry->path().extension() == ".json") there.push_back(entry->path().lexically_normal().string());
    }
  }
  // By the name alone first: most often a folder is missing in front of it.
  const fs::path name = fs::path(written).filename();
  const auto same_name = std::find_if(
      there.begin(), there.end(), [&](const std::string& path) { return fs::path(path).filename() == name; });
  const std::string meant = same_name != there.end() ? *same_name : nearest(written, there);
  refuse(for_topic, key, ": there is no file ", escape_controls(beside.string()),
         meant.empty() ? "" : "; did you mean " + escape_controls(meant) + "?", " (", where, ")");
}

Loaded load_config(const fs::path& file, const std::vector<std::string>& sets, const LoadOptions& options) {
  return with_plain_errors([&] { return load(file, JsonDocument::read(file, topic), sets, options); });
}

Loaded load_config_text(std::string json_text, const fs::path& label, const std::vector<std::string>& sets,
                        const LoadOptions& options) {
  return with_plain_errors([&] {
    return load(label, JsonDocument::parse(std::move(json_text), label.string(), topic), sets, options);
  });
}

}  // namespace normscope
