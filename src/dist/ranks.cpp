#include "dist/ranks.h"

#include <algorithm>

namespace normscope {

void Ranks::gather_bytes(const void* mine, std::size_t count, void* all) const {
  std::copy_n(static_cast<const char*>(mine), count, static_cast<char*>(all));
}

std::string Ranks::prefix() const { return is_first() ? "" : "[mpi] " + name() + ": "; }

bool Ranks::any(bool mine) const {
  std::vector<char> all;
  gather<char>(std::vector<char>{mine}, all);
  return std::ranges::count(all, 1) > 0;
}

void Ranks::throw_first(const std::optional<Error>& mine) {
  std::vector<int> codes;
  gather<int>(std::vector{mine ? static_cast<int>(mine->exit) : 0}, codes);
  const auto failed = std::ranges::find_if(codes, [](int code) { return code != 0; });
  if (failed == codes.end()) return;
  const int from = static_cast<int>(failed - codes.begin());
  std::string message = mine ? prefix() + mine->what() : "";
  std::size_t length = message.size();
  broadcast_bytes(&length, sizeof length, from);
  message.resize(length);
  broadcast_bytes(message.data(), length, from);
  leave();
  throw Error(static_cast<Exit>(*failed), message);
}

void Ranks::require_same(const std::string& mine) {
  std::vector<char> first(mine.begin(), mine.end());
  broadcast(first);
  const std::string_view expected(first.data(), first.size());
  together([&] {
    if (mine != expected)
      refuse("mpi", "not the inputs of the first rank; got ", mine, "; expected ", expected,
             "; start all ranks alike, with the same files, on machines of one kind");
    return true;
  });
}

}  // namespace normscope
