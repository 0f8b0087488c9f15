// From files and --set options to one resolved RunConfig, with where each value came from.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace normscope {

struct Loaded {
  RunConfig config;
  // By dotted key: "configs/deep.json:12:5", "--set", "default", "default: 4*d_model", "settled: ...".
  std::map<std::string, std::string> origins;
};

struct LoadOptions {
  // False: keys that have no default may be missing (and stay empty or 0), and data files need not exist. For
  // commands that look at the model alone.
  bool need_data = true;
  // True: the config must be a run's, resolved: nothing is left to be derived, as it is in a config that a
  // person writes.
  bool resolved = false;
};

// For the config that a run folder or a checkpoint holds.
constexpr LoadOptions of_a_run{.need_data = false, .resolved = true};

// The config file that another file in `folder` names: beside that file, else in the working directory, as
// data files are. Usage Error `KEY: there is no file ...; did you mean ...? (WHERE)` of the topic.
std::filesystem::path find_config(const nlohmann::json& written, const std::filesystem::path& folder,
                                  std::string_view topic, std::string_view key, const std::string& where);

// Reads a config, what it extends, and `sets` (each KEY=VALUE) over it. Every problem is collected; all of
// them are the lines of one Error{usage}. A file that is no JSON at all ends the reading at once.
Loaded load_config(const std::filesystem::path& file, const std::vector<std::string>& sets = {},
                   const LoadOptions& options = {});

// The same of a text, such as the config inside a checkpoint. `label` stands for the file in messages,
// relative paths and the default name.
Loaded load_config_text(std::string json_text, const std::filesystem::path& label,
                        const std::vector<std::string>& sets = {}, const LoadOptions& options = {});

}  // namespace normscope
