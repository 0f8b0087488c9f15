// normscope config [CONFIG]: prints a resolved config, or all keys that a config can have.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/dump.h"
#include "config/fields.h"
#include "config/load.h"
#include "io/json.h"
#include "io/utf8.h"
#include "logs/record.h"
#include "logs/run_folder.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// The default as the list of keys shows it: " (required)", " = 4*d_model", " = 0.1".
std::string default_text(const Field& field) {
  if (field.required) return " (required)";
  if (!field.default_to.words.empty()) return " = " + field.default_to.words;
  const Json value = field.get(RunConfig{});
  if (value.is_number_float()) return text(" = ", value.get<double>());  // 0, where JSON writes 0.0
  return " = " + (value.is_string() && value != "" ? value.get<std::string>() : value.dump());
}

// Prints two lines for each key: its default and meaning, then its type and range.
void print_keys() {
  for (const Field& field : fields())
    std::cout << field.key << default_text(field) << ": " << field.doc << "\n    " << field.allowed << '\n';
  std::cout
      << "extends: config whose settings this one completes or replaces; relative to this file\n    a file\n"
      << "$schema: path at which editors find the schema; ignored\n    anything\n";
}

// `past`: that of RunRecord's history, the values of train.steps before a resumed run's own.
void print_origins(const Loaded& loaded, const Json& past) {
  std::map<std::string, std::string> origins = loaded.origins;
  std::vector<std::string> earlier;
  for (const Json& part : past)
    if (part.is_object() && part.contains("train.steps") && part.contains("step"))
      earlier.push_back(text(part["train.steps"], " until step ", part["step"]));
  if (!earlier.empty()) origins["train.steps"] += "; " + join(earlier);
  Rows table = {{"KEY", "VALUE", "ORIGIN"}};
  for (const Field& field : fields())
    table.push_back({field.key, escape_controls(field.get(loaded.config).dump()),
                     escape_controls(origins.at(field.key))});
  print_table(table);
}

// The settings in a line of --batch: a JSON list of KEY=VALUE.
std::vector<std::string> settings_in(const std::string& line) {
  const Json settings = parse_json(line, "stdin", "config");
  const bool is_list = settings.is_array() && std::ranges::all_of(settings, &Json::is_string);
  if (!is_list)
    refuse("config", "stdin: got ", quote(settings), R"(; expected a list such as ["train.lr=0.01"])");
  return settings;
}

// Prints a line of JSON for each line of stdin. Returns the exit code of the first line that has errors.
Exit print_batch(const std::string& file, const std::vector<std::string>& common) {
  Exit exit = Exit::ok;
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      std::vector<std::string> sets = common;
      std::ranges::copy(settings_in(line), std::back_inserter(sets));
      result["config"] = dump(load_config(file, sets).config);
    } catch (const Error& error) {
      result["error"] = error.what();
      if (exit == Exit::ok) exit = error.exit;
    }
    std::cout << result.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) << '\n';
  }
  return exit;
}

Exit print_config(const CommandLine& line) {
  fs::path file = line.positionals()[0];
  const bool is_run = fs::exists(file / config_file);
  if (is_run) file /= config_file;
  const Loaded loaded = load_config(file.string(), line.all_of("set"), {.may_have_moved = is_run});
  if (line.has("origin"))
    print_origins(loaded, record_in((file.parent_path() / summary_file).string(), "past"));
  else
    std::cout << dump_text(loaded.config);
  return Exit::ok;
}

Exit run(const CommandLine& line) {
  if (line.positionals().empty() && (line.has("set") || line.has("origin") || line.has("batch")))
    refuse("config", "--set, --origin and --batch need a CONFIG");
  if (line.has("batch") && line.has("origin"))
    refuse("config", "--batch prints no origins; leave out --origin");
  if (line.has("schema")) {
    if (!line.positionals().empty()) refuse("config", "--schema takes no CONFIG");
    std::cout << json_text(json_schema());
  } else if (line.positionals().empty()) {
    print_keys();
  } else if (line.has("batch")) {
    return print_batch(line.positionals()[0], line.all_of("set"));
  } else {
    return print_config(line);
  }
  return Exit::ok;
}

}  // namespace

const Command config_command = {
    .name = "config",
    .arguments = "[CONFIG|RUN]",
    .purpose = "print a resolved config, or all keys",
    .details =
        "Without CONFIG, it prints every key with its type, range, default and meaning.\n"
        "With --batch, it resolves CONFIG once for each line of stdin, a JSON list such as\n"
        "[\"train.lr=0.01\", \"train.seed=2\"] that is set over CONFIG and --set, and prints a line\n"
        "of JSON for each: {\"config\": {...}}, or {\"error\": \"a line for every problem\"}.",
    .options = {set_option,
                {"origin", "", "print the origin of each value"},
                {"batch", "", "resolve CONFIG with each of many lists of settings"},
                {"schema", "", "print the JSON Schema for editors"}},
    .run = run,
    .computes = false};

}  // namespace normscope
