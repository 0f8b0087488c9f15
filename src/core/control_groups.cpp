#include "core/control_groups.h"

#include <fstream>

#include "core/error.h"

namespace normscope {

std::vector<std::string> control_groups(const std::string& controller, const std::string& root) {
  std::vector<std::string> folders;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/job" of version 2, "4:cpu,cpuacct:/job" of 1
    const std::size_t controllers = line.find(':') + 1, group = line.find(':', controllers) + 1;
    const std::string named = text(",", line.substr(controllers, group - controllers - 1), ",");
    if (named != ",," && named.find("," + controller + ",") == named.npos) continue;
    const std::string top = root + "/sys/fs/cgroup" + (named == ",," ? "" : "/" + controller);
    // In a container the process's group may be the top one, whatever its name is outside.
    for (std::string path = line.substr(group);; path.erase(path.rfind('/'))) {
      folders.push_back(top + path);
      if (path.find('/') == path.npos) break;
    }
  }
  return folders;
}

}  // namespace normscope
