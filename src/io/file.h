// Files, with an Error for every failure: whole reads, atomic replacement, one writer per folder.
#pragma once

#include <filesystem>
#include <limits>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/types.h"

namespace normscope {

// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor(const std::string& path, int flags);  // opens the file close-on-exec; may fail: see errno
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept { return std::swap(fd_, other.fd_), *this; }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

  // Both return false on failure: see errno.
  bool write(std::string_view bytes);  // all of them
  bool sync();                         // to the disk; true where the file system cannot

 private:
  int fd_;
};

// The system's message for errno.
std::string errno_text();

// The path with the home folder in place of ~ in a leading "~/", which a shell leaves in --out=~/runs. Usage
// Error: HOME is not set.
std::string with_home(const std::string& path);

// The file at the end of the links that begin at `path`; it may not exist.
std::filesystem::path behind_links(std::filesystem::path path);

// The content of a file or pipe. Errors `[topic] path: ...`: missing or larger than `max_bytes` (usage);
// unreadable; interrupted, where a signal with a handler arrives while the program waits for bytes.
std::string read_file(const std::string& path, std::string_view topic = "file",
                      Index max_bytes = std::numeric_limits<Index>::max());

// Replaces a file by the pieces, one after the other: writes a temporary file in the same folder, syncs it
// and renames it. `path` is at every moment the complete old or new file, even if the machine stops between
// two system calls. A link is followed, and a file that is replaced keeps its mode. A kill leaves the temporary
// file, whose short random name fits every folder and cannot be taken beforehand.
void write_atomically(const std::string& path, std::span<const std::string_view> pieces);
inline void write_atomically(const std::string& path, std::string_view content) {
  write_atomically(path, std::span(&content, 1));
}

// Removes the temporary files that killed writers of `path` left. No other process may be writing it.
void remove_leftovers(const std::string& path);

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
