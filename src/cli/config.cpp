// normscope config [CONFIG]: a config as it is understood, or everything a config can say.
#include <iostream>

#include "cli/commands.h"
#include "cli/options.h"
#include "config/dump.h"
#include "config/load.h"
#include "core/error.h"

namespace normscope {

int config_command(int argc, char** argv) {
  CommandLine line("config",
                   "The resolved config; without CONFIG every key with its type, range, default and meaning.",
                   "[CONFIG]");
  line.option("set", "KEY=VALUE", "set a config key; may be given often");
  line.flag("origin", "say where each value came from");
  line.flag("schema", "print the JSON Schema for editors");
  if (!line.parse(argc, argv, 0, 1)) return 0;

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
  return static_cast<int>(Exit::ok);
}

}  // namespace normscope
