#include "train/ranks.h"

#include <algorithm>

namespace normscope {

void Ranks::gather_bytes(const void* mine, std::size_t count, void* all) const {
  std::copy_n(static_cast<const char*>(mine), count, static_cast<char*>(all));
}

bool Ranks::any(bool mine) const {
  std::vector<char> all;
  gather<char>(std::vector<char>{mine}, all);
  return std::ranges::count(all, 1) > 0;
}

std::string Ranks::broadcast_text(std::string text, int from) const {
  std::size_t length = text.size();
  broadcast(&length, sizeof length, from);
  text.resize(length);
  broadcast(text.data(), length, from);
  return text;
}

void Ranks::together(const std::function<void()>& work) {
  int code = 0;
  std::string message;
  try {
    work();
  } catch (const Error& error) {
    code = static_cast<int>(error.exit);
    message = prefix() + error.what();
  }
  std::vector<int> codes;
  gather<int>({&code, 1}, codes);
  const auto failed = std::ranges::find_if(codes, [](int other) { return other != 0; });
  if (failed == codes.end()) return;
  message = broadcast_text(message, static_cast<int>(failed - codes.begin()));
  leave();
  throw Error(static_cast<Exit>(*failed), message);
}

void Ranks::require_same(const std::string& mine) {
  const std::string expected = broadcast_text(mine);
  together([&] {
    if (mine != expected)
      refuse("mpi", "not the inputs of the first rank; got ", mine, "; expected ", expected,
             "; start all ranks alike, with the same files, on machines of one kind");
  });
}

}  // namespace normscope
