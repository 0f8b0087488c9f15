// What commands show while they work, and how they write numbers.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace normscope {

bool stdout_is_terminal();
bool can_rewrite_lines();  // stdout is a terminal that knows escape sequences

std::string grouped(long long number);      // 1,234,567
std::string short_number(double number);    // 52.1k
std::string duration_text(double seconds);  // 0:09, 12:30, 3:02:10
std::string fixed(double number, int digits);
std::string significant_text(double number, int digits = 3);  // 7.18, 0.0123, 3.1e-05

std::size_t shown_width(std::string_view text);  // what a terminal shows of UTF-8: characters, not bytes

// UTF-8 text with blanks behind it, so that a terminal shows `width` characters.
std::string aligned_left(const std::string& text, std::size_t width);

// Prints columns of equal length, two blanks apart: those of numbers, below their title, to the right, but
// for the first column.
void print_table(const std::vector<std::vector<std::string>>& columns);

// Writes a line, or lines, to stderr. They may name files and options: control characters are spelled out.
void print_error(std::string_view message);

// Numbers as bars of eight heights, "▁▂▃▅█", on a logarithmic scale over at least a factor of 10: flat where
// they hardly differ. Of more than `most` numbers some, evenly apart; '!' where one is not finite.
std::string sparkline(const std::vector<double>& numbers, std::size_t most = 24);

// The parts of a line, two blanks apart; where the terminal is too narrow, without the last ones but one.
std::string fitted(std::vector<std::string> parts);

// How far long work is: on a terminal lines that are rewritten in place; in a pipe the last of them, at most
// once in 10 s.
class ProgressDisplay {
 public:
  explicit ProgressDisplay(bool quiet = false,
                           std::chrono::milliseconds interval = std::chrono::milliseconds(100))
      : quiet_(quiet), terminal_(can_rewrite_lines()), interval_(interval) {}
  ~ProgressDisplay() { clear(); }

  bool due() const;  // whether show() would show anything now: saves formatting
  void show(const std::vector<std::string>& lines);
  void clear();                          // takes the lines off a terminal
  void say(const std::string& message);  // a whole line above them, to stdout

 private:
  using Clock = std::chrono::steady_clock;
  const bool quiet_, terminal_;
  const Clock::duration interval_;
  std::size_t shown_ = 0;  // lines on the terminal
  Clock::time_point last_ = Clock::now();
};

}  // namespace normscope
