// Little helpers for texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace normscope {

inline std::string join(const std::vector<std::string>& words, std::string_view separator = ", ") {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i) all.append(i == 0 ? "" : separator).append(words[i]);
  return all;
}

}  // namespace normscope
