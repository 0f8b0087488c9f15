#include "io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

namespace normscope {
namespace fs = std::filesystem;

FileDescriptor::FileDescriptor(const std::string& path, int flags)
    : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

bool FileDescriptor::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(written);
  }
  return true;
}

bool FileDescriptor::sync() { return ::fsync(fd_) == 0 || errno == EINVAL || errno == ENOTSUP; }

std::string errno_text() { return std::generic_category().message(errno); }

std::string read_file(const std::string& path, std::string_view topic, Index max_bytes) {
  const FileDescriptor file(path, O_RDONLY);
  if (!file.is_open() && errno == ENOENT) refuse(topic, path, ": ", errno_text());
  require(file.is_open(), topic, path, ": cannot be opened: ", errno_text());

  std::string bytes;
  for (std::size_t chunk = 1 << 16;; chunk = std::max(chunk, bytes.size())) {
    const std::size_t have = bytes.size();
    bytes.resize(have + chunk);
    const ssize_t got = ::read(file.get(), bytes.data() + have, chunk);
    require(got >= 0, topic, path, ": cannot be read: ", errno_text());
    bytes.resize(have + got);
    if (std::ssize(bytes) > max_bytes)
      refuse(topic, path, ": is larger than ", max_bytes, " bytes, the most that can be used");
    if (got == 0) return bytes;
  }
}

std::string temporary_path(const std::string& path) { return path + ".normscope-tmp"; }

void write_atomically(const std::string& path, std::span<const std::string_view> pieces) {
  std::error_code ignored;  // renaming over a device would replace it: `--dump /dev/null` as root must not
  require(!fs::exists(path, ignored) || fs::is_regular_file(path, ignored), "file", path,
          ": cannot be written: it exists and is not a file");
  const std::string temporary = temporary_path(path);
  const auto check = [&](bool is_done, std::string_view failure) {
    if (is_done) return;
    const std::string reason = errno_text();
    ::unlink(temporary.c_str());
    fail("file", path, ": ", failure, ": ", reason);
  };
  FileDescriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  check(file.is_open(), "cannot be created");
  for (const std::string_view piece : pieces) check(file.write(piece), "cannot be written");
  check(file.sync(), "cannot be synced");
  check(::rename(temporary.c_str(), path.c_str()) == 0, "cannot be renamed into place");
  FileDescriptor folder(fs::path(path).parent_path() / ".", O_RDONLY | O_DIRECTORY);
  check(folder.is_open() && folder.sync(), "the folder cannot be synced");
}

FolderLock::FolderLock(const std::string& folder) : folder_(folder, O_RDONLY | O_DIRECTORY) {
  require(folder_.is_open(), "lock", folder, ": cannot be opened: ", errno_text());
  is_held_ = ::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0;
  if (!is_held_ && errno == EWOULDBLOCK)
    fail("lock", folder, ": another process is writing here; wait for it or use another folder");
}

}  // namespace normscope
