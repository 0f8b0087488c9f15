// Output for people: numbers, tables, progress.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace normscope {

bool can_rewrite_lines();  // stdout is a terminal that knows escape sequences

std::string grouped(long long number);      // 1,234,567
std::string short_number(double number);    // 52.1k
std::string duration_text(double seconds);  // 0:09, 12:30, 3:02:10
std::string fixed(double number, int digits);
std::string significant_text(double number, int digits = 3);  // 7.18, 0.0123, 3.1e-05
std::string counted(long long number, const char* noun);      // 1 run, 2 runs

// UTF-8 text padded with blanks to `width` characters.
std::string aligned_left(const std::string& text, std::size_t width);

// The path quoted for a shell if it must be.
std::string shell_word(const std::string& path);

// A table's rows of equal length, the titles first.
using Rows = std::vector<std::vector<std::string>>;

// Prints columns two blanks apart. Columns of numbers are right-aligned, but for the first.
void print_table(const Rows& rows);

// Writes a line, or lines, to stderr with control characters (of file names, of options) escaped.
void print_error(std::string_view message);

// Numbers as bars of eight heights, and the ratio of the smallest to the largest: "▁▂▃▅█ 1:9e+04". The scale
// is logarithmic and spans at least a factor of 10, so that nearly equal numbers look flat. 24 bars sample
// more numbers evenly; '!' stands for a number that is not finite.
std::string sparkline(const std::vector<double>& numbers);

// Progress of long work: on a terminal a line that is rewritten in place, in a pipe whole lines, one in 10 s.
class ProgressDisplay {
 public:
  explicit ProgressDisplay(bool quiet = false) : quiet_(quiet), terminal_(can_rewrite_lines()) {}
  ~ProgressDisplay() { clear(); }

  bool due() const;  // whether show() would print anything now; saves formatting
  // Prints the parts of a line, two blanks apart. A narrow terminal gets fewer: the last but one goes first.
  void show(std::vector<std::string> parts);
  void clear();                          // removes the line from a terminal
  void say(const std::string& message);  // prints a whole line above it

 private:
  using Clock = std::chrono::steady_clock;
  const bool quiet_, terminal_;
  bool shown_ = false;  // on the terminal
  Clock::time_point last_ = Clock::now();
};

}  // namespace normscope
