// Linux's control groups, by which containers and batch systems limit a process.
#pragma once

#include <string>
#include <vector>

namespace normscope {

// The folders of this process's control groups, versions 1 and 2, where limits of `controller` ("cpu",
// "memory") may be: its own group and those above it. `root` is prefixed to /proc and /sys.
std::vector<std::string> control_groups(const std::string& controller, const std::string& root);

}  // namespace normscope
