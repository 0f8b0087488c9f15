// Errors: one line that says where, what was wrong, what was got, what was expected, what to do.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace normscope {

// Exit codes of the program (and the only ones).
enum class Exit : int { ok = 0, failure = 1, usage = 2, diverged = 3, interrupted = 130 };

// A message for the user: `[where] what`. `exit` is what the program returns because of it.
class Error : public std::runtime_error {
 public:
  Error(Exit exit_code, const std::string& message) : std::runtime_error(message), exit(exit_code) {}
  Exit exit;
};

// A file does not hold what was once written to it; where there is an earlier one, that may do.
class Damaged : public Error {
 public:
  explicit Damaged(const std::string& message) : Error(Exit::failure, message) {}
};

// Joins its arguments as a stream would print them.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Throws Error{failure}: I/O, damaged files, broken invariants.
template <class... Parts>
[[noreturn]] void fail(std::string_view where, const Parts&... parts) {
  throw Error(Exit::failure, text('[', where, "] ", parts...));
}

template <class... Parts>
[[noreturn]] void fail_as_damaged(std::string_view where, const Parts&... parts) {
  throw Damaged(text('[', where, "] ", parts...));
}

// Throws Error{usage}: the command line, a config, a corpus that cannot be used.
template <class... Parts>
[[noreturn]] void refuse(std::string_view where, const Parts&... parts) {
  throw Error(Exit::usage, text('[', where, "] ", parts...));
}

// An invariant of the program. Never compiled out.
template <class... Parts>
void require(bool holds, std::string_view where, const Parts&... parts) {
  if (!holds) fail(where, parts...);
}

}  // namespace normscope
