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

// UTF-8 text with blanks behind it, so that a terminal shows `width` characters.
std::string aligned_left(const std::string& text, std::size_t width);

// Prints columns of equal length, two blanks apart: those with numbers to the right, but for the first.
void print_table(const std::vector<std::vector<std::string>>& columns);

// Writes a line, or lines, to stderr. They may name files and options: control characters are spelled out.
void print_error(std::string_view message);

// A line that shows how far long work is: rewritten in place on a terminal; in a pipe a whole line, at most
// one in 10 s.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet) : quiet_(quiet), terminal_(can_rewrite_lines()) {}
  ~ProgressLine() { clear(); }

  void show(std::vector<std::string> parts);  // where it is too narrow, without the last ones but one
  void clear();                               // takes the line off a terminal
  void say(const std::string& message);       // a whole line of its own, to stdout
  bool due() const;                           // whether show() would show anything now: saves formatting

 private:
  using Clock = std::chrono::steady_clock;
  bool quiet_, terminal_;
  bool shown_ = false;
  Clock::time_point last_ = Clock::now();
};

// The same of several lines: the last one is what a pipe gets.
class ProgressTable {
 public:
  ProgressTable() : terminal_(can_rewrite_lines()) {}
  ~ProgressTable() { clear(); }

  bool due() const;
  void show(const std::vector<std::string>& lines);
  void clear();
  void say(const std::string& line);  // a whole line above the table, to stdout

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  std::size_t shown_ = 0;  // lines on the terminal
  Clock::time_point last_ = Clock::now();
};

}  // namespace normscope
