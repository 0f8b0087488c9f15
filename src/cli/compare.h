// What `compare` prints, for other commands.
#pragma once

#include <string>
#include <vector>

namespace normscope {

// Run folders, or folders of such, side by side: table, paired differences, remarks.
void print_comparison(const std::vector<std::string>& runs);

}  // namespace normscope
