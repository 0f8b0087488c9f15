#include "config/sweep.h"

#include <algorithm>
#include <set>

#include "config/field_types.h"
#include "config/load.h"
#include "config/problems.h"
#include "core/hash.h"
#include "core/text.h"
#include "io/utf8.h"

namespace normscope {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* topic = "sweep";
constexpr const char* seed_key = "train.seed";

// Keys and the values that a run gives them.
using Settings = std::vector<std::pair<std::string, json>>;

// A point of the grid, or a case.
struct Point {
  std::string name;  // of a case
  Settings settings;
  std::size_t named = 0;  // how many of the first settings the name stands for
};

// The values of "A,B": all of them JSON, else each JSON or a string.
std::vector<json> values_of(const std::string& list) {
  const auto parse = [](const std::string& word) { return json_or_string(word, "--set", topic); };
  const json all = parse("[" + list + "]");
  if (all.is_array() && !all.empty()) return all;
  std::vector<json> values;
  for (const std::string& word : split(list)) values.push_back(parse(word));
  return values;
}

// The value in a folder's name, where 1e3 is 1000.
std::string to_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  const std::optional<Index> whole = whole_number(value);
  return whole ? std::to_string(*whole) : json_line(value);
}

// `whole` with other characters than [A-Za-z0-9._=+-] replaced; where it is too long cut, with a hash.
std::string folder_name(const std::string& whole) {
  constexpr std::size_t max_bytes = 100;
  std::string name = whole;
  constexpr const char* allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=+-";
  for (std::size_t at = 0; (at = name.find_first_not_of(allowed, at)) != name.npos;) name[at] = '-';
  if (name.starts_with('.')) name[0] = '-';
  if (name.size() <= max_bytes) return name;
  const std::string hash = hex(fnv1a(whole));
  return name.substr(0, max_bytes - 1 - hash.size()) + "-" + hash;
}

class SweepReader {
 public:
  SweepReader(const fs::path& file, const JsonDocument& document, const SweepOptions& options)
      : file_(file), document_(document), options_(options) {}

  Sweep read() {
    const auto has = [&](const char* section) { return member(section) != nullptr; };
    is_config_ = !has("base") && (has("model") || has("train") || has("data") || has("extends"));
    if (is_config_ && options_.sets.empty() && options_.seeds == 0)
      refuse(topic, document_.name(), ": is a config, not a sweep; run it with normscope train ",
             escape_controls(file_.string()), ", or say what shall vary: --set KEY=A,B or --seeds N");
    if (!root_.is_object()) refuse(topic, document_.name(), ": ", type_error(root_, "an object: a sweep"));
    if (!is_config_) check_keys(root_, {"$schema", "name", "base", "seeds", "grid", "cases"});
    read_name();
    read_base();
    read_seeds();
    read_points();
    for (const std::string& set : options_.sets) read_set(set);
    if (!seeds_.empty()) {
      sweep_.varied_keys.push_back(seed_key);
      multiply(seed_key, seeds_, options_.seeds > 0 ? root_ : *member("seeds"));
    }
    if (points_.size() > options_.most) too_many(root_);
    problems_.throw_if_any();
    make_runs();
    problems_.throw_if_any();
    return std::move(sweep_);
  }

 private:
  template <class... Parts>
  void problem(const json& at, const std::string& key, const Parts&... what) {
    if (!problems_.only_count()) problems_.add(key, document_.where(at), what...);
  }

  // The member of the file, or null.
  const json* member(const std::string& name) const {
    const auto found = root_.find(name);
    return found == root_.end() || (is_config_ && name != "name") ? nullptr : &*found;
  }

  void check_keys(const json& object, const std::vector<std::string>& known) {
    for (const auto& [name, value] : object.items()) {
      if (std::ranges::count(known, name) > 0) continue;
      const std::string meant = nearest(name, known);
      problem(value, name, "unknown key; ",
              meant.empty() ? "expected " + join(known) : "did you mean " + meant + "?");
    }
  }

  void read_name() {
    const json* name = member("name");
    RunConfig named;
    const std::string error = find_field("name")->set(named, name ? *name : json(file_.stem().string()));
    if (!error.empty()) return problem(name ? *name : root_, "name", error);
    sweep_.name = named.name;
  }

  void read_base() {
    if (is_config_) return void(sweep_.base = file_);
    const json* base = member("base");
    if (!base) return problem(root_, "base", "missing; expected the file of a config");
    try {
      sweep_.base = find_config(*base, file_.parent_path(), topic, "base", document_.where(*base));
    } catch (const Error& error) {
      problems_.add_line(error.what());
    }
  }

  void read_seeds() {
    const json* seeds = member("seeds");
    for (Index seed = 1; seed <= options_.seeds; ++seed) seeds_.push_back(seed);
    if (!seeds || !seeds_.empty()) return;
    if (!seeds->is_array() || seeds->empty())
      return problem(*seeds, "seeds", type_error(*seeds, "a list such as [1, 2, 3]"));
    std::set<Index> known;
    for (const json& seed : *seeds) {
      RunConfig seeded;
      const std::string error = find_field(seed_key)->set(seeded, seed);
      if (!error.empty()) {
        problem(seed, "seeds", error);
      } else if (!known.insert(seeded.train.seed).second) {
        problem(seed, "seeds", seeded.train.seed, " is listed twice");
      } else {
        seeds_.push_back(seeded.train.seed);
      }
    }
  }

  // Adds a key in which runs differ, or a problem where they cannot.
  void vary(const std::string& key, const json& at) {
    if (key == seed_key && !seeds_.empty()) {
      problem(at, key, "`seeds` says which seeds there are; give one of them");
    } else if (key == "name") {
      problem(at, key, "a run's name is made of what it varies");
    } else if (!find_field(key)) {
      if (!problems_.only_count()) problem(at, key, unknown_key(key));
    } else if (std::ranges::count(sweep_.varied_keys, key) == 0) {
      sweep_.varied_keys.push_back(key);
    }
  }

  void read_points() {
    const json *grid = member("grid"), *cases = member("cases");
    if (grid || !cases) points_.push_back({});  // without a grid: the base alone
    if (grid) read_grid(*grid);
    if (!cases) return;
    if (!cases->is_array() || cases->empty())
      return problem(*cases, "cases",
                     type_error(*cases, "a list of {\"name\": NAME, \"set\": {KEY: VALUE, ...}}"));
    for (const json& one : *cases) read_case(one);
  }

  void read_grid(const json& grid) {
    if (!grid.is_object() || grid.empty())
      return problem(grid, "grid", type_error(grid, "{KEY: [VALUE, ...], ...}"));
    for (const auto& member : document_.members(grid)) {
      const json& values = member.value();
      vary(member.key(), values);
      if (values.is_array() && !values.empty()) {
        multiply(member.key(), values, values);
      } else {
        problem(values, member.key(), type_error(values, "a list of values"));
      }
    }
  }

  // Combines every point with each of the values.
  template <class Values>
  void multiply(const std::string& key, const Values& values, const json& at) {
    if (points_.size() * values.size() > options_.most) return too_many(at);
    std::vector<Point> product;
    for (const Point& point : points_) {
      for (const auto& value : values) {
        product.push_back(point);
        product.back().settings.emplace_back(key, value);
      }
    }
    points_ = std::move(product);
  }

  void read_set(const std::string& set) {
    const std::size_t equals = std::min(set.find('='), set.size());
    const std::string key = set.substr(0, equals);
    const std::vector<json> values = values_of(set.substr(std::min(equals + 1, set.size())));
    if (std::ranges::count(sweep_.varied_keys, key) > 0)
      return problem(root_, key, "the sweep varies it already; leave out --set ", key);
    const bool is_fixed = key == "name" || (key == seed_key && !seeds_.empty());  // vary() says by what
    if (values.size() < 2 && !is_fixed) return common_.push_back(set);
    vary(key, root_);
    multiply(key, values, root_);
  }

  void read_case(const json& one) {
    const json name = one.is_object() ? one.value("name", json()) : json();
    const auto set = one.find("set");
    if (!name.is_string() || name == "" || set == one.end() || !set->is_object())
      return problem(one, "cases", type_error(one, "{\"name\": NAME, \"set\": {KEY: VALUE, ...}}"));
    check_keys(one, {"name", "set"});
    Point point{name.get<std::string>(), {}};
    for (const auto& member : document_.members(*set)) {
      vary(member.key(), member.value());
      point.settings.emplace_back(member.key(), member.value());
    }
    point.named = point.settings.size();
    points_.push_back(std::move(point));
  }

  // The key in a folder's name: its last part, or all of it where two would look the same.
  std::string short_key(const std::string& key) const {
    const std::string last(last_part(key));
    return std::ranges::count(sweep_.varied_keys, last, last_part) > 1 ? key : last;
  }

  void too_many(const json& at) {
    problem(at, "runs", "more than ", options_.most, " runs; split the sweep in several");
  }

  void make_runs() {
    std::set<std::string> names;
    for (const auto& [case_name, settings, named] : points_) {
      std::string name = case_name;
      for (std::size_t i = named; i < settings.size(); ++i)
        name += (name.empty() ? "" : "_") + short_key(settings[i].first) + "=" + to_text(settings[i].second);
      name = folder_name(name.empty() ? sweep_.name : name);
      if (!names.insert(name).second)
        return problem(root_, "runs", "two would share the folder ", name,
                       "; values and names of cases must differ in more than special characters");
      add_run(name, settings);
    }
  }

  void add_run(const std::string& name, const Settings& settings) {
    SweepRun run{name, {"name=" + json_line(name)}, {}};
    run.sets.insert(run.sets.end(), common_.begin(), common_.end());
    for (const auto& [key, value] : settings) run.sets.push_back(key + "=" + json_line(value));
    try {
      run.config = load_config(sweep_.base, run.sets).config;
    } catch (const Error& error) {  // each different line once, with the run's name
      for (const std::string& line : split(error.what(), '\n')) {
        if (reported_.insert(line).second) problems_.add_line(line + " in " + name);
      }
    }
    sweep_.runs.push_back(std::move(run));
  }

  const fs::path& file_;
  const JsonDocument& document_;
  const json& root_ = document_.root();
  const SweepOptions& options_;
  bool is_config_ = false;
  std::vector<std::string> common_;  // KEY=VALUE for all runs
  Sweep sweep_;
  std::vector<Index> seeds_;
  std::vector<Point> points_;
  Problems problems_{topic};
  std::set<std::string> reported_;  // lines of the runs' configs
};

}  // namespace

Sweep load_sweep(const fs::path& file, const JsonDocument& document, const SweepOptions& options) {
  return SweepReader(file, document, options).read();
}

std::string value_text(const RunConfig& config, const std::string& key) {
  const Field* field = find_field(key);
  require(field != nullptr, topic, "no key ", key);
  return to_text(field->get(config));
}

}  // namespace normscope
