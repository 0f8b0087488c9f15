#include "io/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <optional>
#include <system_error>

#include "io/utf8.h"

namespace normscope {
namespace {

// EINVAL means that the file system cannot sync this.
bool sync(int fd) { return ::fsync(fd) == 0 || errno == EINVAL; }

// Waits until a pipe can be read, with a message if that takes long: a named pipe may never get a writer.
void wait_for_writer(int fd, const std::string& path, std::string_view where) {
  constexpr int patience_ms = 1000;
  const std::string pipe = text('[', where, "] ", escape_controls(path), ": is a pipe; ");
  pollfd reading{fd, POLLIN, 0};
  int ready = ::poll(&reading, 1, patience_ms);
  if (ready == 0) {
    std::cerr << pipe << "waiting for what is written to it\n";
    ready = ::poll(&reading, 1, -1);
  }
  if (ready < 0) throw Error(Exit::interrupted, pipe + "interrupted before anything was written to it");
  ::fcntl(fd, F_SETFL, O_RDONLY);  // without O_NONBLOCK: read() waits for the rest
}

// Whether the open file or folder is the one at `path`. nullopt: unknown, see errno.
std::optional<bool> same_file(int fd, const std::string& path) {
  struct stat open {};
  struct stat named {};
  if (::fstat(fd, &open) != 0) return std::nullopt;
  if (::stat(path.c_str(), &named) == 0) return open.st_dev == named.st_dev && open.st_ino == named.st_ino;
  return errno == ENOENT ? std::optional(false) : std::nullopt;
}

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
    if (written == 0) errno = EIO;  // rather than an endless loop
    if (written <= 0) return false;
    bytes.remove_prefix(written);
  }
  return true;
}

Index read_at(int fd, void* out, Index size, Index offset) {
  Index done = 0;
  while (done < size) {
    const ssize_t got = ::pread(fd, static_cast<char*>(out) + done, size - done, offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += got;
  }
  return done;
}

std::string read_file(const std::string& path, const ReadOptions& options) {
  const auto stop = [&](const auto&... what) {
    throw Error(options.exit, text('[', options.where, "] ", escape_controls(path), ": ", what...));
  };
  const FileDescriptor file(path, O_RDONLY | O_NONBLOCK);  // a pipe must not block here
  if (!file.is_open()) stop("cannot be opened: ", errno_text());
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    fail(options.where, escape_controls(path), ": cannot be read: ", errno_text());  // no fault of the path
  if (S_ISDIR(status.st_mode)) {
    const std::filesystem::path config = std::filesystem::path(path) / "config.json";
    std::error_code ignored;
    stop("is a folder; expected a file",
         std::filesystem::exists(config, ignored) ? ", such as " + escape_controls(config.string()) : "");
  }
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) stop("is a device; expected a file or a pipe");
  if (S_ISFIFO(status.st_mode)) wait_for_writer(file.get(), path, options.where);

  // The size is only a guess: a pipe has none, and a file may grow. The extra byte finds the end.
  std::string bytes;
  std::size_t room = std::max<std::size_t>(status.st_size, 4095) + 1;
  for (std::size_t have = 0;;) {
    if (std::max<Index>(std::ssize(bytes), status.st_size) > options.max_bytes)
      stop("is larger than ", options.max_bytes, " bytes", options.limit);
    bytes.resize(have + room);
    const ssize_t got = ::read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno != EINTR)
      fail(options.where, escape_controls(path), ": cannot be read: ", errno_text());
    have += std::max<ssize_t>(got, 0);
    bytes.resize(have);
    if (got == 0) return bytes;
    room = std::max<std::size_t>(have, 4096);
  }
}

std::string previous_path(const std::string& path) {
  std::filesystem::path previous(path);
  const std::string extension = previous.extension().string();
  return previous.replace_extension(".previous" + extension).string();
}

std::string temporary_path(const std::string& path) { return path + ".normscope-tmp"; }

AtomicFile::AtomicFile(const Destination& to) : path_(to.path), lock_(to.lock) {
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0) {
    // Renaming over a device would replace it: `--dump /dev/null` as root must not.
    require(S_ISREG(status.st_mode), "file", escape_controls(path_),
            ": cannot be written: it exists and is not a file");
    std::error_code ignored;
    const auto target = std::filesystem::canonical(path_, ignored);  // a link stays a link
    if (!ignored) path_ = target.string();
  }
  temporary_ = temporary_path(path_);
  ::unlink(temporary_.c_str());  // a killed process may have left it
  file_ = FileDescriptor(temporary_, O_WRONLY | O_CREAT | O_EXCL);
  if (!file_.is_open()) fail_writing("cannot be created");
}

AtomicFile::~AtomicFile() {
  if (same_file(file_.get(), temporary_).value_or(false)) ::unlink(temporary_.c_str());  // not renamed
}

void AtomicFile::fail_writing(std::string_view action) const {
  fail("file", escape_controls(path_), ": ", action, ": ", errno_text());
}

void AtomicFile::write(std::string_view bytes) {
  if (!write_all(file_.get(), bytes)) fail_writing("cannot be written");
}

void AtomicFile::commit(Keep keep) {
  if (!sync(file_.get())) fail_writing("cannot be synced");
  const std::optional<bool> ours = same_file(file_.get(), temporary_);
  if (!ours) fail_writing("cannot be looked up");
  require(*ours, "file", escape_controls(path_), ": not written: another process replaced or removed ",
          escape_controls(temporary_));
  if (lock_) lock_->require_in_place();  // else the temporary file was created in another folder
  if (keep == Keep::previous) keep_previous();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_writing("cannot be renamed into place");

  const FileDescriptor folder(std::filesystem::path(path_).parent_path() / ".", O_RDONLY | O_DIRECTORY);
  if (!folder.is_open() || !sync(folder.get())) fail_writing("the folder cannot be synced");
  if (::close(file_.release()) != 0 && errno != EINTR) fail_writing("cannot be closed");
}

// A hard link gives the old file its second name, so `path` always exists. A link cannot replace a file, so
// it is created under a third name and renamed over the older previous file.
void AtomicFile::keep_previous() const {
  const std::string previous = previous_path(path_);
  const std::string link = temporary_path(previous);
  ::unlink(link.c_str());
  if (::link(path_.c_str(), link.c_str()) == 0) {
    const bool renamed = ::rename(link.c_str(), previous.c_str()) == 0;
    const int reason = errno;
    ::unlink(link.c_str());  // rename() keeps it if both names are one file, after a kill
    errno = reason;
    if (!renamed) fail_writing("the previous one cannot be kept");
    return;
  }
  if (errno == ENOENT) return;  // no old file
  // A file system without hard links: for a moment only `previous` exists, which is complete.
  if (::rename(path_.c_str(), previous.c_str()) != 0) fail_writing("the previous one cannot be kept");
}

FolderLock::FolderLock(const std::string& folder) : path_(folder), folder_(folder, O_RDONLY | O_DIRECTORY) {
  const std::string name = escape_controls(folder);
  require(folder_.is_open(), "lock", name, ": cannot be opened: ", errno_text());
  int result = ::flock(folder_.get(), LOCK_EX | LOCK_NB);
  if (result != 0 && errno == EBADF) {  // NFS locks only files open for writing, which a folder never is
    file_ = FileDescriptor(folder + "/.lock", O_RDWR | O_CREAT);
    require(file_.is_open(), "lock", name, "/.lock: cannot be created: ", errno_text());
    result = ::flock(file_.get(), LOCK_EX | LOCK_NB);
  }
  if (result == 0) return;
  if (errno == EWOULDBLOCK)
    fail("lock", name, ": another process is writing here; wait for it or use another folder");
  fail("lock", name, ": cannot be locked: ", errno_text());
}

void FolderLock::require_in_place() const {
  const std::optional<bool> in_place = same_file(folder_.get(), path_);
  const std::string name = escape_controls(path_);
  if (!in_place) fail("lock", name, ": cannot be looked up: ", errno_text());
  require(*in_place, "lock", name, ": the folder was moved, removed or replaced while it was written in; ",
          "put it back and go on, or start again");
}

}  // namespace normscope
