#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "io/utf8.h"

namespace normscope {
namespace {

constexpr std::chrono::milliseconds terminal_interval(100), pipe_interval(10'000);

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

bool can_rewrite_lines() {
  const char* kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && !(kind && std::string_view(kind) == "dumb");
}

std::string grouped(long long number) {
  std::string digits = std::to_string(number);
  for (auto at = std::ssize(digits) - 3; at > (number < 0); at -= 3) digits.insert(at, ",");
  return digits;
}

// The stream would show the sign of a NaN, which means nothing.
std::string fixed(double number, int digits) {
  return std::isnan(number) ? "nan" : text(std::fixed, std::setprecision(digits), number);
}

std::string significant_text(double number, int digits) {
  return std::isnan(number) ? "nan" : text(std::setprecision(digits), number);
}

std::string counted(long long number, const char* noun) {
  return text(number, ' ', noun, number == 1 ? "" : "s");
}

std::string short_number(double number) {
  if (!(std::abs(number) >= 1e3)) return fixed(number, 0);
  if (std::abs(number) < 1e6) return fixed(number / 1e3, number < 1e5 ? 1 : 0) + "k";
  return fixed(number / 1e6, 2) + "M";
}

std::string duration_text(double seconds) {
  const long long total = std::llround(std::max(0.0, seconds)), hours = total / 3600;
  const auto two_digits = [](long long n) { return std::to_string(100 + n % 60).substr(1); };
  return hours == 0 ? text(total / 60, ':', two_digits(total))
                    : text(hours, ':', two_digits(total / 60), ':', two_digits(total));
}

std::string aligned_left(const std::string& text, std::size_t width) {
  return text + std::string(std::max(width, shown_width(text)) - shown_width(text), ' ');
}

std::string shell_word(const std::string& path) {
  constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=,:@%";
  std::string word = escape_controls(path);
  if (word.find_first_not_of(plain) == word.npos) return word;
  for (std::size_t at = 0; (at = word.find('\'', at)) != word.npos; at += 4) word.replace(at, 1, "'\\''");
  return "'" + word + "'";
}

void print_table(const Rows& rows) {
  const auto is_number = [](const std::string& cell) {
    return cell.empty() || cell == "nan" || cell == "inf" ||
           std::string_view("0123456789+-").find(cell[0]) != std::string_view::npos;
  };
  std::vector<std::string> lines(rows.size());
  for (std::size_t i = 0; i < rows[0].size(); ++i) {
    bool is_right = i > 0;
    std::size_t width = 0;
    for (const std::vector<std::string>& row : rows) {
      is_right = is_right && (&row == &rows[0] || is_number(row[i]));
      width = std::max(width, shown_width(row[i]));
    }
    for (std::size_t row = 0; row < lines.size(); ++row) {
      const std::string& cell = rows[row][i];
      const std::string pad(width - shown_width(cell), ' ');
      lines[row] += (i == 0 ? "" : "  ") + (is_right ? pad + cell : cell + pad);
    }
  }
  for (const std::string& line : lines) std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
}

void print_error(std::string_view message) { std::cerr << escape_controls(message, "\n") << '\n'; }

std::string sparkline(const std::vector<double>& numbers) {
  constexpr std::size_t max_bars = 24;
  double low = std::numeric_limits<double>::infinity(), high = 0;  // of the numbers that have a logarithm
  for (const double x : numbers) {
    if (!std::isfinite(x) || x <= 0) continue;
    low = std::min(low, x);
    high = std::max(high, x);
  }
  const double span = std::max(std::log(high / low), std::log(10.0));
  const std::size_t count = std::min(numbers.size(), max_bars);
  std::string bars;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = numbers[count < 2 ? 0 : i * (numbers.size() - 1) / (count - 1)];
    const long height = x > 0 ? std::lround(7 * std::log(x / low) / span) : 0;  // 0 to 7
    bars += std::isfinite(x) ? std::string("\xE2\x96") + static_cast<char>(0x81 + height) : "!";
  }
  return text(bars, " 1:", significant_text(high > 0 ? high / low : 1, 2));
}

bool ProgressDisplay::due() const {
  const Clock::duration interval = terminal_ ? terminal_interval : pipe_interval;
  return !quiet_ && (Clock::now() - last_ >= interval || (terminal_ && !shown_));
}

void ProgressDisplay::show(std::vector<std::string> parts) {
  if (!due()) return;
  clear();
  last_ = Clock::now();
  while (terminal_ && parts.size() > 1 && shown_width(join(parts, "  ")) >= terminal_width())
    parts.erase(parts.end() - 2);
  std::cout << join(parts, "  ") << (terminal_ ? "" : "\n") << std::flush;
  shown_ = terminal_;
}

void ProgressDisplay::clear() {
  if (shown_) std::cout << "\r\x1b[J" << std::flush;
  shown_ = false;
}

void ProgressDisplay::say(const std::string& message) {
  if (quiet_) return;
  clear();
  std::cout << message << std::endl;
}

}  // namespace normscope
