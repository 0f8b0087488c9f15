// Files, with every failure said: whole reads, atomic replacement, one writer a folder.
#pragma once

#include <sys/stat.h>

#include <limits>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/types.h"

namespace normscope {

// Owns a file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();

 private:
  int fd_;
};

// Writes all of `bytes`, through short writes and interruptions. False: errno says why.
bool write_all(int fd, std::string_view bytes);

// Reads `size` bytes at `offset`, through short reads and interruptions; returns how many
// there were. -1: errno.
Index read_at(int fd, void* out, Index size, Index offset);

// The words for errno.
std::string errno_text();

struct ReadOptions {
  std::string_view where = "file";                      // the error's [where]
  Exit exit = Exit::failure;                            // of a path that cannot be read as a file
  Index max_bytes = std::numeric_limits<Index>::max();  // more is an error, and is not read
  std::string_view limit = "";                          // why that many, and what to do, for the error
};

// The whole file. Errors: missing, a folder, unreadable, too large.
std::string read_file(const std::string& path, const ReadOptions& options = {});

enum class Keep { nothing, previous };

// checkpoint.safetensors -> checkpoint.previous.safetensors
std::string previous_path(const std::string& path);

// Where AtomicFile writes what will be the file at `path`. No other program names a file so: one that is
// found there was left by a killed process of this program.
std::string temporary_path(const std::string& path);

// Replaces a file whole or not at all: what is written goes to temporary_path(path), which commit() syncs and
// renames. Until then, and whenever anything fails, the file at `path` stays as it was and the temporary is
// removed; after a kill the next writer of `path` removes it.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::string_view bytes);

  // Keep::previous: the file now at `path`, if there is one, stays as previous_path(path). At every
  // moment there is a whole file at `path`, the old or the new one, also if the machine stops
  // between two system calls.
  void commit(Keep keep = Keep::nothing);

 private:
  void keep_previous() const;
  [[noreturn]] void fail_writing(std::string_view action) const;

  std::string path_;
  std::string temporary_;
  FileDescriptor file_;
  bool pending_ = false;  // the temporary is ours and not yet renamed
};

template <class... Pieces>
void write_atomically(const std::string& path, const Pieces&... pieces) {
  AtomicFile file(path);
  (file.write(pieces), ...);
  file.commit();
}

enum class IfLocked { fail, wait };

// Held by the one process that writes in a folder; a second one gets an Error at once, or waits until it gets
// a signal. The kernel releases it when the process ends, however it ends, so there is nothing to clean up
// after a kill. Holders of a part of the work, by name, may write side by side: they shut out each other's
// doubles and the one that has it all.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder, const std::string& part = "",
                      IfLocked if_locked = IfLocked::fail);

  // Error: the folder that was locked is no longer the one at its path, which may be another's by now.
  void require_in_place() const;

 private:
  std::string path_;
  struct stat identity_ {};
  FileDescriptor folder_, part_;
};

}  // namespace normscope
