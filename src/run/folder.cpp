#include "run/folder.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "io/json.h"
#include "io/utf8.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// In the order of removal, which a kill may interrupt. The checkpoint first: none is left beside removed
// logs. config.json last: with it the folder is still a run, and the removal can be repeated.
const std::vector<std::string> owned_files = {checkpoint_file, summary_file, metrics_file, layers_file,
                                              params_file,     heads_file,   model_file,   best_file,
                                              sample_file,     config_file};

bool is_run(const fs::path& folder) {
  if (!fs::is_regular_file(folder / config_file)) return false;
  const Json config = Json::parse(read_file((folder / config_file).string()), nullptr, false);
  constexpr const char* sections[] = {"name", "model", "data", "train", "eval", "log", "checkpoint"};
  return config.is_object() &&
         std::ranges::all_of(sections, [&](const char* section) { return config.contains(section); });
}

// Error unless the path is that of a folder, or of nothing yet.
void require_no_file(const std::string& path) {
  std::error_code error;
  if (path.empty()) refuse("run", "the folder's name is empty; name one with --out DIR");
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    fail("run", escape_controls(path), " cannot be looked up: ", error.message());
  if (fs::exists(status) && !fs::is_directory(status))
    refuse("run", escape_controls(path),
           " is a file; expected a folder, or none yet; choose another with --out DIR");
}

const std::string& created(const std::string& path) {
  std::error_code error;
  require_no_file(path);
  fs::create_directories(path, error);
  if (error) fail("run", "could not create ", escape_controls(path), ": ", error.message());
  return path;
}

}  // namespace

void require_usable(const std::string& path, Existing existing, std::string_view ways) {
  const std::string shown = escape_controls(path);
  require_no_file(path);
  const auto found = std::ranges::find_if(
      owned_files, [&](const std::string& name) { return fs::exists(fs::path(path) / name); });
  if (found == owned_files.end()) return;
  if (!is_run(path))
    refuse("run", shown, " holds ", *found, " but is no run of normscope; nothing was touched; ",
           "choose another folder with --out DIR");
  if (existing == Existing::refuse)
    refuse("run", shown, " holds a run already; ", ways, ", or choose another folder with --out DIR");
}

RunFolder::RunFolder(const std::string& path, Existing existing) : path_(path), lock_(created(path)) {
  require_usable(path, existing, "go on with --resume, start again with --overwrite");
  std::error_code error;
  for (const std::string& name : owned_files) {
    fs::remove(AtomicFile::temporary_path(file(name)), error);  // a later write reports what an error means
    if (existing == Existing::overwrite && !fs::remove(file(name), error) && error)
      fail("run", "could not remove ", escape_controls(file(name)), ": ", error.message());
  }
}

std::string RunFolder::file(std::string_view name) const { return (fs::path(path_) / name).string(); }

bool RunFolder::has(std::string_view name) const { return fs::exists(file(name)); }

}  // namespace normscope
