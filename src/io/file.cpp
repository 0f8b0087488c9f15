#include "io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <system_error>

#include "core/random.h"

namespace normscope {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t min_chunk = 1 << 16;  // bytes of a read from a pipe

// The path of every temporary file of writers of `file`, but for its random end. It holds a hash in place of
// the file's name, which may be as long as the file system allows.
std::string temporary_prefix(const fs::path& file) {
  return file.parent_path() / (".normscope-" + hex(fnv1a(file.filename().string())) + "-");
}

}  // namespace

std::string with_home(const std::string& path) {
  if (!path.starts_with("~/")) return path;
  const char* home = std::getenv("HOME");
  if (home == nullptr) refuse("file", path, ": HOME is not set; write the whole path");
  return home + path.substr(1);
}

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

fs::path behind_links(fs::path path) {
  constexpr int most_links = 40;  // as the system follows
  std::error_code ignored;
  for (int links = 0; links < most_links && fs::is_symlink(path, ignored); ++links)
    path = path.parent_path() / fs::read_symlink(path, ignored);
  return path;
}

std::string errno_text() { return std::generic_category().message(errno); }

std::string read_file(const std::string& path, std::string_view topic, Index max_bytes) {
  const auto check = [&](bool is_done, std::string_view failure) {
    if (is_done) return;
    if (errno == EINTR)
      throw Error(Exit::interrupted, text('[', topic, "] ", path, ": reading was interrupted"));
    fail(topic, path, ": ", failure, ": ", errno_text());
  };
  const FileDescriptor file(path, O_RDONLY);
  if (!file.is_open() && errno == ENOENT) refuse(topic, path, ": ", errno_text());
  check(file.is_open(), "cannot be opened");

  struct stat status {};
  std::string bytes;
  // A regular file takes no more memory than its size; a pipe, and a file of /proc, reports 0.
  if (::fstat(file.get(), &status) == 0) bytes.reserve(std::min<Index>(status.st_size, max_bytes) + 1);
  for (;;) {
    const std::size_t have = bytes.size();
    const std::size_t chunk = have < bytes.capacity() ? bytes.capacity() - have : std::max(have, min_chunk);
    bytes.resize(have + chunk);
    const ssize_t got = ::read(file.get(), bytes.data() + have, chunk);
    check(got >= 0, "cannot be read");
    bytes.resize(have + got);
    if (std::ssize(bytes) > max_bytes)
      refuse(topic, path, ": is larger than ", max_bytes, " bytes, the most that can be used");
    if (got == 0) return bytes;
  }
}

void write_atomically(const std::string& path, std::span<const std::string_view> pieces) {
  const fs::path target = behind_links(path);
  struct stat old {};
  const bool exists = ::stat(path.c_str(), &old) == 0;
  // Renaming over a device would replace it: `--dump /dev/null` as root must not.
  require(!exists || S_ISREG(old.st_mode), "file", path, ": cannot be written: it exists and is not a file");
  const std::string temporary = temporary_prefix(target) + hex(std::random_device()()).substr(8);
  FileDescriptor file(temporary, O_WRONLY | O_CREAT | O_EXCL);  // O_EXCL: follows no link
  require(file.is_open(), "file", path, ": cannot be created: ", errno_text());
  const auto check = [&](bool is_done, std::string_view failure) {
    if (is_done) return;
    const std::string reason = errno_text();
    ::unlink(temporary.c_str());
    fail("file", path, ": ", failure, ": ", reason);
  };
  if (exists) check(::fchmod(file.get(), old.st_mode & 07777) == 0, "its mode cannot be kept");
  for (const std::string_view piece : pieces) check(file.write(piece), "cannot be written");
  check(file.sync(), "cannot be synced");
  check(::rename(temporary.c_str(), target.c_str()) == 0, "cannot be renamed into place");
  FileDescriptor folder(target.parent_path() / ".", O_RDONLY | O_DIRECTORY);
  check(folder.is_open() && folder.sync(), "the folder cannot be synced");
}

void remove_leftovers(const std::string& path) {
  std::error_code ignored;  // a later write reports what an error means
  const std::string prefix = temporary_prefix(behind_links(path));
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(prefix).parent_path(), ignored)) {
    if (entry.path().string().starts_with(prefix)) fs::remove(entry.path(), ignored);
  }
}

FolderLock::FolderLock(const std::string& folder) : folder_(folder, O_RDONLY | O_DIRECTORY) {
  require(folder_.is_open(), "lock", folder, ": cannot be opened: ", errno_text());
  const auto lock = [&] { return ::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0; };
  is_held_ = lock();
  if (!is_held_ &&
      errno == EWOULDBLOCK) {  // a script that asks whether a run is alive holds it for microseconds
    ::usleep(50'000);
    is_held_ = lock();
  }
  if (!is_held_ && errno == EWOULDBLOCK)
    fail("lock", folder, ": another process is writing here; wait for it or use another folder");
}

}  // namespace normscope
