// normscope config [CONFIG]: a config as it is understood, or everything a config can say.
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/dump.h"
#include "config/fields.h"
#include "config/load.h"
#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace {

// " (required)", " = 4*d_model", " = 0.1".
std::string default_text(const Field& field) {
  if (field.required) return " (required)";
  if (!field.default_to.words.empty()) return " = " + field.default_to.words;
  const Json value = field.get(RunConfig{});
  if (value.is_number_float()) return text(" = ", value.get<double>());  // 0, where JSON writes 0.0
  return " = " + (value.is_string() && value != "" ? value.get<std::string>() : value.dump());
}

// Two lines a key: its default and meaning, then its type and range.
void print_keys() {
  for (const Field& field : fields())
    std::cout << field.key << default_text(field) << ": " << field.doc << "\n    " << field.allowed << '\n';
  std::cout << "extends: another config, under this one; relative to this file\n    a file\n"
            << "$schema: for editors; ignored\n    anything\n";
}

void print_origins(const Loaded& loaded) {
  Columns table = {{"KEY"}, {"VALUE"}, {"ORIGIN"}};
  for (const Field& field : fields())
    add_row(table, {field.key, escape_controls(field.get(loaded.config).dump()),
                    escape_controls(loaded.origins.at(field.key))});
  print_table(table);
}

Exit run(const CommandLine& line) {
  if (line.positionals().empty() && (line.has("set") || line.has("origin")))
    refuse("config", "--set and --origin need a CONFIG");
  if (line.has("schema")) {
    if (!line.positionals().empty()) refuse("config", "--schema takes no CONFIG");
    std::cout << json_text(json_schema());
  } else if (line.positionals().empty()) {
    print_keys();
  } else {
    const Loaded loaded = load_config(line.positionals()[0], line.all_of("set"));
    if (line.has("origin"))
      print_origins(loaded);
    else
      std::cout << dump_text(loaded.config);
  }
  return Exit::ok;
}

}  // namespace

const Command config_command = {
    .name = "config",
    .arguments = "[CONFIG]",
    .purpose = "a config resolved, or every key there is",
    .details = "Without CONFIG: every key with its type, range, default and meaning.",
    .options = {set_option,
                {"origin", "", "say where each value came from"},
                {"schema", "", "print the JSON Schema for editors"}},
    .run = run,
    .computes = false};

}  // namespace normscope
