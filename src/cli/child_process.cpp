#include "cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "core/error.h"

namespace normscope {
namespace {

constexpr std::size_t max_kept = 4096;  // bytes of stderr

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) : process_(0) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("sweep", "cannot make a pipe: ", errno_text());
  stderr_ = FileDescriptor(ends[0]);
  const FileDescriptor write_end(ends[1]);
  ::fcntl(stderr_.get(), F_SETFL, O_NONBLOCK);

  // Everything is allocated before fork(): after it, only what is safe in a signal handler may be called.
  std::vector<std::string> words = {"normscope"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  require(child >= 0, "sweep", "cannot start a process: ", errno_text());
  if (child == 0) {
    ::setpgid(
        0, 0);  // a Ctrl-C at the terminal is the parent's to pass on: a second signal would end it at once
#ifdef __linux__
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);  // the parent has ended before the line above
#endif
    const int nothing = ::open("/dev/null", O_RDWR);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(nothing, STDOUT_FILENO);
    ::dup2(write_end.get(), STDERR_FILENO);
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }
  process_.id = child;
}

ChildProcess::~ChildProcess() {
  if (process_.id == 0) return;
  terminate();
  while (!poll()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void ChildProcess::read_errors() {
  char bytes[1024];
  for (;;) {
    const ssize_t got = ::read(stderr_.get(), bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    errors_.append(bytes, static_cast<std::size_t>(got));
    if (errors_.size() > max_kept) errors_.erase(0, errors_.size() - max_kept);
  }
}

std::optional<int> ChildProcess::poll() {
  read_errors();
  int status = 0;
  const pid_t ended = ::waitpid(process_.id, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return std::nullopt;
  process_.id = 0;
  read_errors();
  if (ended < 0) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void ChildProcess::terminate() {
  if (process_.id != 0 && !std::exchange(terminated_, true)) ::kill(process_.id, SIGTERM);
}

}  // namespace normscope
