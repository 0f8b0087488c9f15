// Errors: one line with the place, the fault, the value, the expectation and a remedy.
#pragma once

#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace normscope {

// Exit codes of the program (and the only ones).
enum class Exit : int { ok = 0, failure = 1, usage = 2, diverged = 3, interrupted = 130 };

// A message for the user, `[where] what`, and the program's exit code.
class Error : public std::runtime_error {
 public:
  Error(Exit exit_code, const std::string& message) : std::runtime_error(message), exit(exit_code) {}
  Exit exit;
};

// The arguments as a stream prints them, manipulators included.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Throw Error{failure}: I/O, damaged files, broken invariants.
template <class... Parts>
[[noreturn]] void fail(std::string_view where, const Parts&... parts) {
  throw Error(Exit::failure, text('[', where, "] ", parts...));
}

// Throw Error{usage}: the command line, a config, a corpus that cannot be used.
template <class... Parts>
[[noreturn]] void refuse(std::string_view where, const Parts&... parts) {
  throw Error(Exit::usage, text('[', where, "] ", parts...));
}

// The note on a part that the result does not need, and that an Error or a lack of memory ended.
inline std::string left_out(std::string_view part, const std::exception& why) {
  const bool is_memory = dynamic_cast<const std::bad_alloc*>(&why) != nullptr;
  return text("note: without ", part, ": ", is_memory ? "there is not enough memory" : why.what());
}

// Error{failure} unless `holds`. Never compiled out.
template <class... Parts>
void require(bool holds, std::string_view where, const Parts&... parts) {
  if (!holds) fail(where, parts...);
}

}  // namespace normscope
