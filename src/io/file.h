// Files, with an Error for every failure: whole reads, atomic replacement, one writer per folder.
#pragma once

#include <limits>
#include <utility>

#include "core/error.h"
#include "core/types.h"

namespace normscope {

// Owns a file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(const std::string& path, int flags);  // opens it close-on-exec; may fail: see errno
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept { return std::swap(fd_, other.fd_), *this; }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Writes all of `bytes`, continuing after short writes and interruptions. False: see errno.
bool write_all(int fd, std::string_view bytes);

// The system's message for errno.
std::string errno_text();

struct ReadOptions {
  std::string_view where = "file";                      // [where] of Errors
  Exit exit = Exit::failure;                            // exit code of Errors
  Index max_bytes = std::numeric_limits<Index>::max();  // a larger file is an Error
  std::string_view limit = "";                          // the reason and a remedy, for that Error
};

// The content of a file or pipe. Errors: missing, a folder, a device, unreadable, too large.
std::string read_file(const std::string& path, const ReadOptions& options = {});

// Replaces a file completely or not at all: writes beside it, then syncs and renames. `path` is at every
// moment the complete old or new file, even if the machine stops between two system calls. After a kill the
// temporary file stays; the next writer of `path` replaces it.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  // without commit(): removes the temporary file

  void write(std::string_view bytes);
  void commit();

  static std::string temporary_path(const std::string& path);

 private:
  [[noreturn]] void fail_writing(std::string_view action) const;

  std::string path_, temporary_;
  FileDescriptor file_;
  bool committed_ = false;
};

template <class... Pieces>
void write_atomically(const std::string& path, const Pieces&... pieces) {
  AtomicFile file(path);
  (file.write(pieces), ...);
  file.commit();
}

// The lock of the one process that writes in a folder; Error: another process holds it. The kernel releases
// the lock when the process ends, so a kill leaves nothing to clean up. On a file system without locks
// is_held() is false.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  bool is_held() const { return is_held_; }

 private:
  FileDescriptor folder_;
  bool is_held_ = false;
};

}  // namespace normscope
