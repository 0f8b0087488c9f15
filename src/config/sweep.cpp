#include "config/sweep.h"

#include <algorithm>
#include <set>

#include "config/fields.h"
#include "config/load.h"
#include "config/problems.h"
#include "core/hash.h"
#include "core/nearest.h"
#include "core/text.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* topic = "sweep";
constexpr std::size_t longest_name = 100;
constexpr const char* seed_key = "train.seed";

// A key and the value that a run gives it.
struct Setting {
  std::string key;
  json value;
};
using Settings = std::vector<Setting>;

// A point of the grid, or a case. A case has a name of its own.
struct Point {
  std::string name;
  Settings settings;
};

// As a folder's name has it: 1e3 is 1000.
std::string plain(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  const std::optional<Index> whole = whole_number(value);
  return whole ? std::to_string(*whole) : value.dump();
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// What can be a folder's name everywhere, and short enough for one.
std::string folder_name(std::string name) {
  const std::string whole = name;
  for (char& c : name) {
    const bool kept = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                      std::string_view("._=+-").find(c) != std::string_view::npos;
    if (!kept) c = '-';
  }
  if (name.starts_with('.')) name[0] = '-';
  if (name.size() <= longest_name) return name;
  const std::string hash = hex(fnv1a(whole));
  return name.substr(0, longest_name - 1 - hash.size()) + "-" + hash;
}

class SweepReader {
 public:
  SweepReader(const fs::path& file, const JsonDocument& source, std::size_t most)
      : file_(file), source_(source), most_(most) {}

  Sweep read() {
    const auto has = [&](const char* section) {
      return source_.root().is_object() && source_.root().contains(section);
    };
    if (!has("base") && (has("model") || has("train") || has("data") || has("extends"))) {
      refuse(topic, source_.name(), ": is a config, not a sweep; run it with normscope train ",
             escape_controls(file_.string()));
    }
    check_keys(source_.root(), {"$schema", "name", "base", "seeds", "grid", "cases"}, "a sweep");
    read_name();
    read_base();
    read_seeds();
    read_points();
    problems_.throw_if_any();
    make_runs();
    problems_.throw_if_any();
    return std::move(sweep_);
  }

 private:
  template <class... Parts>
  void problem(const json& at, const Parts&... what) {
    problems_.add_line(problems_.many() ? "" : text('[', topic, "] ", what..., " (", source_.where(at), ")"));
  }

  // The member of the file, or null.
  const json* member(const char* name) const {
    const auto found = source_.root().find(name);
    return found == source_.root().end() ? nullptr : &*found;
  }

  void check_keys(const json& object, const std::vector<std::string>& known, const char* of) {
    if (!object.is_object()) {
      problem(object, "got ", quote(object), "; expected an object: ", of);
      problems_.throw_if_any();
    }
    for (const auto& [name, value] : object.items()) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string meant = nearest(name, known);
      problem(value, escape_controls(name.substr(0, 100)), ": no key of ", of, "; ",
              meant.empty() ? "it has " + join(known) : "did you mean " + meant + "?");
    }
  }

  void read_name() {
    const json* name = member("name");
    RunConfig named;
    const std::string wrong = find_field("name")->set(named, name ? *name : json(file_.stem().string()));
    if (!wrong.empty()) return problem(name ? *name : source_.root(), "name: ", wrong);
    sweep_.name = named.name;
  }

  void read_base() {
    const json* base = member("base");
    if (base == nullptr || !base->is_string()) {
      problem(base == nullptr ? source_.root() : *base,
              "base: ", base == nullptr ? "missing" : "got " + quote(*base),
              "; expected the file of the config that all runs start from");
      return;
    }
    if (base->get_ref<const std::string&>().find('\0') != std::string::npos) {
      return problem(*base, "base: a path cannot hold a NUL character");
    }
    try {
      sweep_.base =
          find_config(base->get<std::string>(), file_.parent_path(), topic, "base", source_.where(*base));
    } catch (const Error& error) {
      problems_.add_line(error.what());
    }
  }

  void read_seeds() {
    const json* seeds = member("seeds");
    if (seeds == nullptr) return;
    if (!seeds->is_array() || seeds->empty()) {
      return problem(*seeds, "seeds: got ", quote(*seeds), "; expected a list such as [1, 2, 3]");
    }
    std::set<Index> known;
    for (const json& seed : *seeds) {
      const std::optional<Index> number = whole_number(seed);
      if (!number || *number < 0) {
        problem(seed, "seeds: got ", quote(seed), "; expected a whole number from 0");
      } else if (!known.insert(*number).second) {
        problem(seed, "seeds: ", *number, " is listed twice");
      } else {
        seeds_.push_back(*number);
      }
    }
  }

  // Notes that runs differ in a key; says what is wrong with it.
  void vary(const std::string& key, const json& at) {
    if (key == seed_key && member("seeds") != nullptr) {
      problem(at, seed_key, ": `seeds` says which seeds there are; give one of them");
    } else if (key == "name") {
      problem(at, "name: a run's name is made of what it varies");
    } else if (is_section(key)) {
      problem(at, key, ": is a section; expected a key in it, written ", key,
              ".KEY; `normscope config` lists all");
    } else if (find_field(key) == nullptr) {
      const std::string meant = nearest_key(key);
      problem(at, escape_controls(key), ": unknown key; ",
              meant.empty() ? "`normscope config` lists all" : "did you mean " + meant + "?");
    } else if (std::find(sweep_.varied_keys.begin(), sweep_.varied_keys.end(), key) ==
               sweep_.varied_keys.end()) {
      sweep_.varied_keys.push_back(key);
    }
  }

  void read_points() {
    const json *grid = member("grid"), *cases = member("cases");
    if (grid != nullptr) {
      read_grid(*grid);
    } else if (cases == nullptr) {
      points_.push_back({});  // the base alone, with every seed
    }
    if (cases == nullptr) return;
    if (!cases->is_array() || cases->empty()) {
      return problem(*cases, "cases: got ", quote(*cases), "; expected a list of {\"name\", \"set\"}");
    }
    for (const json& one : *cases) read_case(one);
  }

  void read_grid(const json& grid) {
    if (!grid.is_object() || grid.empty()) {
      return problem(grid, "grid: got ", quote(grid), "; expected {KEY: [VALUE, ...], ...}");
    }
    points_.push_back({});
    for (const auto& member : source_.members(grid)) {
      const std::string& key = member.key();
      const json& values = member.value();
      vary(key, values);
      if (!values.is_array() || values.empty()) {
        problem(values, escape_controls(key), ": got ", quote(values), "; expected a list of values");
        continue;
      }
      if (points_.size() * values.size() > most_) return too_many(values);
      std::vector<Point> product;
      for (const Point& point : points_) {
        for (const json& value : values) {
          product.push_back(point);
          product.back().settings.push_back({key, value});
        }
      }
      points_ = std::move(product);
    }
  }

  void read_case(const json& one) {
    check_keys(one, {"name", "set"}, "a case");
    const auto name = one.find("name"), set = one.find("set");
    if (name == one.end() || !name->is_string() || name->get<std::string>().empty()) {
      problem(one, "cases: a case needs a \"name\"");
      return;
    }
    if (set == one.end() || !set->is_object()) {
      return problem(one, "cases: ", quote(*name), " needs a \"set\": {KEY: VALUE, ...}");
    }
    Point point{name->get<std::string>(), {}};
    for (const auto& member : source_.members(*set)) {
      vary(member.key(), member.value());
      point.settings.push_back({member.key(), member.value()});
    }
    points_.push_back(std::move(point));
  }

  // The key as a folder's name has it: its last part, or the whole where two would look the same.
  std::string short_key(const std::string& key) const {
    const auto same = [&](const std::string& other) { return last_part(other) == last_part(key); };
    return std::count_if(sweep_.varied_keys.begin(), sweep_.varied_keys.end(), same) > 1 ? key
                                                                                         : last_part(key);
  }

  void too_many(const json& at) { problem(at, "more than ", most_, " runs; split the sweep in several"); }

  void make_runs() {
    if (points_.size() * std::max<std::size_t>(1, seeds_.size()) > most_) {
      return too_many(*member(seeds_.empty() ? "cases" : "seeds"));
    }
    if (member("seeds") != nullptr) sweep_.varied_keys.push_back(seed_key);
    std::set<std::string> names;
    for (const Point& point : points_) {
      for (std::size_t i = 0; i < std::max<std::size_t>(1, seeds_.size()); ++i) {
        Settings settings = point.settings;
        std::string name = point.name;
        if (!seeds_.empty()) settings.push_back({seed_key, seeds_[i]});
        for (std::size_t s = point.name.empty() ? 0 : point.settings.size(); s < settings.size(); ++s) {
          name += (name.empty() ? "" : "_") + short_key(settings[s].key) + "=" + plain(settings[s].value);
        }
        if (name.empty()) name = sweep_.name;
        add_run(folder_name(name), settings);
        if (!names.insert(sweep_.runs.back().name).second) {
          problem(source_.root(), "two runs would share the folder ", sweep_.runs.back().name,
                  "; values and names of cases must differ in more than special characters");
          return;
        }
      }
    }
  }

  void add_run(const std::string& name, const Settings& settings) {
    SweepRun run{name, {"name=" + name}, {}};
    for (const auto& [key, value] : settings) run.sets.push_back(key + "=" + value.dump());
    try {
      run.config = load_config(sweep_.base, run.sets).config;
    } catch (const Error& error) {  // its lines, each with the run it is about; the same ones once
      const std::string_view lines = error.what();
      for (std::size_t begin = 0; begin < lines.size();) {
        const std::size_t end = std::min(lines.find('\n', begin), lines.size());
        const std::string line(lines.substr(begin, end - begin));
        if (said_.insert(line).second) problems_.add_line(text(line, " in ", name));
        begin = end + 1;
      }
    }
    sweep_.runs.push_back(std::move(run));
  }

  const fs::path file_;
  const JsonDocument& source_;
  const std::size_t most_;
  Sweep sweep_;
  std::vector<Index> seeds_;
  std::vector<Point> points_;
  Problems problems_{topic};
  std::set<std::string> said_;
};

}  // namespace

Sweep load_sweep(const fs::path& file) {
  const JsonDocument source = JsonDocument::read(file, topic);
  return SweepReader(file, source, max_runs).read();
}

Sweep load_sweep_text(std::string json_text, const fs::path& label, std::size_t most) {
  const JsonDocument source = JsonDocument::parse(std::move(json_text), label.string(), topic);
  return SweepReader(label, source, most).read();
}

std::string value_text(const RunConfig& config, const std::string& key) {
  const Field* field = find_field(key);
  require(field != nullptr, topic, "no key ", key);
  return plain(json(field->get(config)));
}

}  // namespace normscope
