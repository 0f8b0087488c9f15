// What has to be in order before main's work begins.
#pragma once

namespace normscope {

// Opens /dev/null where standard input, output or error are closed: else the next files that are opened would
// take their numbers, and notes would be written into a run's logs.
void open_standard_streams();

// GNU OpenMP lets a waiting thread spin for milliseconds. Alone on the machine that costs nothing; beside any
// other busy program it makes steps up to ten times slower, because threads spin for one that is not running.
// A short spin is as fast alone. The library reads the setting before main, so the program
// starts itself once more. Not where threads are bound to processors: this one is bound already, and all
// threads of the new program would inherit its processor.
void shorten_openmp_spin(char** argv);

}  // namespace normscope
