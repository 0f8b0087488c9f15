// Little helpers for texts.
#pragma once

#include <string>
#include <string_view>

namespace normscope {

// Of a vector or set of strings.
template <class Words>
std::string join(const Words& words, std::string_view separator = ", ") {
  std::string all;
  std::string_view before;
  for (const std::string& word : words) {
    all.append(before).append(word);
    before = separator;
  }
  return all;
}

}  // namespace normscope
