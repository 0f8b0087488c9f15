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
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept { return std::swap(fd_, other.fd_), *this; }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Writes all of `bytes`, continuing after short writes and interruptions. False: see errno.
bool write_all(int fd, std::string_view bytes);

// Reads `size` bytes at `offset`, continuing after short reads and interruptions, and returns how many there
// are. -1: see errno.
Index read_at(int fd, void* out, Index size, Index offset);

// The system's message for errno.
std::string errno_text();

struct ReadOptions {
  std::string_view where = "file";                      // [where] of Errors
  Exit exit = Exit::failure;                            // of a path that is no readable file
  Index max_bytes = std::numeric_limits<Index>::max();  // a larger file is an Error
  std::string_view limit = "";                          // the reason and a remedy, for that Error
};

// The content of a file. Errors: missing, a folder, unreadable, too large.
std::string read_file(const std::string& path, const ReadOptions& options = {});

enum class Keep { nothing, previous };

// checkpoint.safetensors -> checkpoint.previous.safetensors
std::string previous_path(const std::string& path);

// Where AtomicFile writes the future content of `path`. Only this program uses such names, so an existing
// file was left by a killed process.
std::string temporary_path(const std::string& path);

class FolderLock;

// The path of a file to write. If the lock of its folder is given, nothing is written into another folder
// that takes the name meanwhile.
struct Destination {
  Destination(std::string p, const FolderLock* folder_lock = nullptr)
      : path(std::move(p)), lock(folder_lock) {}

  std::string path;
  const FolderLock* lock;
};

// Replaces a file completely or not at all: writes to temporary_path(path), which commit() syncs and renames.
// Without commit(), or if anything fails, the file at `path` is unchanged and the temporary file is removed;
// after a kill the next writer of `path` removes it.
class AtomicFile {
 public:
  explicit AtomicFile(const Destination& to);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::string_view bytes);

  // Keep::previous: an existing file at `path` becomes previous_path(path). At every moment `path` is the
  // complete old or new file, even if the machine stops between two system calls.
  void commit(Keep keep = Keep::nothing);

 private:
  void keep_previous() const;
  [[noreturn]] void fail_writing(std::string_view action) const;

  std::string path_;
  const FolderLock* lock_;
  std::string temporary_;
  FileDescriptor file_;
};

template <class... Pieces>
void write_atomically(const Destination& to, const Pieces&... pieces) {
  AtomicFile file(to);
  (file.write(pieces), ...);
  file.commit();
}

// The lock of the one process that writes in a folder; a second process gets an Error. The kernel releases
// the lock when the process ends, so a kill leaves nothing to clean up.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);

  // Error: the path is no longer the locked folder, so another process may use it.
  void require_in_place() const;

 private:
  std::string path_;
  FileDescriptor folder_, file_;  // file_: locked in place of the folder, if that cannot be
};

}  // namespace normscope
