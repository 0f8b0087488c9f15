// What has to be in order before main's work begins.
#pragma once

namespace normscope {

// Opens /dev/null where standard input, output or error are closed: else the next files that are opened would
// take their numbers, and notes would be written into a run's logs.
void open_standard_streams();

}  // namespace normscope
