// normscope config [CONFIG]: a config as it is understood, or everything a config can say.
#include <iostream>

#include "cli/commands.h"
#include "config/dump.h"
#include "config/load.h"

namespace normscope {

namespace {

Exit run(const CommandLine& line) {
  if (line.has("schema")) {
    if (!line.positionals().empty()) refuse("config", "--schema describes every config; it takes no CONFIG");
    std::cout << json_schema_text();
  } else if (line.positionals().empty()) {
    std::cout << describe_keys();
  } else {
    const Loaded loaded = load_config(line.positionals()[0], line.all_of("set"));
    std::cout << (line.has("origin") ? dump_with_origin(loaded.config, loaded.origins)
                                     : dump_text(loaded.config));
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
    .run = run};

}  // namespace normscope
