// Child processes: this program run again, beside itself.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "io/file.h"

namespace normscope {

// One run of this program with other arguments. It ends with its parent: a killed parent's children are asked
// to stop, as by a SIGTERM.
class ChildProcess {
 public:
  explicit ChildProcess(const std::vector<std::string>& arguments);  // without argv[0]
  ChildProcess(ChildProcess&&) = default;
  ~ChildProcess();  // terminates it, and waits for its end

  // The exit code, once it has ended (128 + the signal that ended it); nothing while it runs.
  std::optional<int> poll();

  // SIGTERM: it saves its state and ends. Sent once, since a second one would end it unsaved.
  void terminate();

  const std::string& errors() const { return errors_; }  // what it wrote to stderr, its last kilobytes

 private:
  void read_errors();

  struct Owned {  // a process id that a move leaves behind
    pid_t id = 0;
    Owned(pid_t process) : id(process) {}
    Owned(Owned&& other) noexcept : id(other.id) { other.id = 0; }
  };
  Owned process_;
  bool terminated_ = false;
  FileDescriptor stderr_;
  std::string errors_;
};

}  // namespace normscope
