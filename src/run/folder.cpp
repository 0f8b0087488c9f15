#include "run/folder.h"

#include <algorithm>

#include "config/load.h"
#include "io/utf8.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// In the order of removal, which a kill may interrupt. Checkpoints first: none is left beside removed logs.
// config.json last: with it the folder is still a run, and the removal can be repeated.
// clang-format off
const std::vector<std::string> owned_files = {
    checkpoint_file, previous_path(checkpoint_file), summary_file, metrics_file, layers_file, params_file,
    heads_file, model_file, best_file, sample_file, previous_path(best_file), config_file};
// clang-format on

// Why the folder is no run's folder, so that its files are not ours; empty: it is one.
std::string not_a_run(const std::string& path) {
  const fs::path config = fs::path(path) / config_file;
  if (!fs::exists(config)) return text("there is no ", config_file);
  try {
    load_config(config, {}, of_a_run);
    return "";
  } catch (const Error& error) {
    if (error.exit != Exit::usage) throw;  // it could not be read
    const std::string lines = error.what();
    return lines.substr(0, lines.find('\n'));
  }
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

}  // namespace

void require_usable(const std::string& path, Existing existing, std::string_view ways) {
  const std::string shown = escape_controls(path);
  require_no_file(path);
  const auto found = std::ranges::find_if(
      owned_files, [&](const std::string& name) { return fs::exists(fs::path(path) / name); });
  if (found == owned_files.end()) return;
  if (const std::string reason = not_a_run(path); !reason.empty())
    refuse("run", shown, " holds ", *found, " but no run of normscope; nothing was touched; choose another ",
           "folder with --out DIR: ", reason);
  if (existing == Existing::refuse)
    refuse("run", shown, " holds a run already; ", ways, ", or choose another folder with --out DIR");
}

RunFolder::RunFolder(const std::string& path, Existing existing) : path_(path) {
  std::error_code error;
  require_no_file(path);
  fs::create_directories(path, error);
  if (error) fail("run", "could not create ", escape_controls(path), ": ", error.message());
  lock_.emplace(path);
  require_usable(path, existing, "go on with --resume, start again with --overwrite");
  for (const std::string& name : owned_files) {
    fs::remove(temporary_path(file(name)), error);  // a write to it will say what an error here means
    if (existing == Existing::overwrite && !fs::remove(file(name), error) && error)
      fail("run", "could not remove ", escape_controls(file(name)), ": ", error.message());
  }
}

std::string RunFolder::file(std::string_view name) const { return (fs::path(path_) / name).string(); }

Destination RunFolder::file_to_write(std::string_view name) const {
  lock_->require_in_place();
  return {file(name), &*lock_};
}

bool RunFolder::has(std::string_view name) const { return fs::exists(file(name)); }

}  // namespace normscope
