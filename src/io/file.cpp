#include "io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "io/utf8.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

// EINVAL, ENOTSUP: the file system cannot sync this.
bool sync(int fd) { return ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP; }

}  // namespace

FileDescriptor::FileDescriptor(const std::string& path, int flags)
    : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::string errno_text() { return std::generic_category().message(errno); }

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(written);
  }
  return true;
}

std::string read_file(const std::string& path, const ReadOptions& options) {
  const auto stop = [&](const auto&... what) {
    throw Error(options.exit, text('[', options.where, "] ", escape_controls(path), ": ", what...));
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    stop("is a folder; expected a file",
         fs::exists(fs::path(path) / "config.json", ignored)
             ? ", such as " + escape_controls((fs::path(path) / "config.json").string())
             : "");
  if (fs::is_character_file(path, ignored) || fs::is_block_file(path, ignored))
    stop("is a device; expected a file or a pipe");
  const FileDescriptor file(path, O_RDONLY);
  if (!file.is_open()) stop("cannot be opened: ", errno_text());

  std::string bytes;
  for (std::size_t chunk = 1 << 16;; chunk = std::max(chunk, bytes.size())) {
    const std::size_t have = bytes.size();
    bytes.resize(have + chunk);
    const ssize_t got = ::read(file.get(), bytes.data() + have, chunk);
    if (got < 0 && errno != EINTR) stop("cannot be read: ", errno_text());
    bytes.resize(have + std::max<ssize_t>(got, 0));
    if (std::ssize(bytes) > options.max_bytes)
      stop("is larger than ", options.max_bytes, " bytes", options.limit);
    if (got == 0) return bytes;
  }
}

std::string AtomicFile::temporary_path(const std::string& path) { return path + ".normscope-tmp"; }

AtomicFile::AtomicFile(const std::string& path) : path_(path), temporary_(temporary_path(path)) {
  std::error_code ignored;  // renaming over a device would replace it: `--dump /dev/null` as root must not
  require(!fs::exists(path, ignored) || fs::is_regular_file(path, ignored), "file", escape_controls(path),
          ": cannot be written: it exists and is not a file");
  file_ = FileDescriptor(temporary_, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file_.is_open()) fail_writing("cannot be created");
}

AtomicFile::~AtomicFile() {
  if (file_.is_open() && !committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::fail_writing(std::string_view action) const {
  fail("file", escape_controls(path_), ": ", action, ": ", errno_text());
}

void AtomicFile::write(std::string_view bytes) {
  if (!write_all(file_.get(), bytes)) fail_writing("cannot be written");
}

void AtomicFile::commit() {
  if (!sync(file_.get())) fail_writing("cannot be synced");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_writing("cannot be renamed into place");
  committed_ = true;
  const FileDescriptor folder(fs::path(path_).parent_path() / ".", O_RDONLY | O_DIRECTORY);
  if (!folder.is_open() || !sync(folder.get())) fail_writing("the folder cannot be synced");
}

FolderLock::FolderLock(const std::string& folder) : folder_(folder, O_RDONLY | O_DIRECTORY) {
  const std::string name = escape_controls(folder);
  require(folder_.is_open(), "lock", name, ": cannot be opened: ", errno_text());
  is_held_ = ::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0;
  if (!is_held_ && errno == EWOULDBLOCK)
    fail("lock", name, ": another process is writing here; wait for it or use another folder");
}

}  // namespace normscope
