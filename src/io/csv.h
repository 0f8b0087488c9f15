// Logs as CSV, with numbers in the shortest form that reads back to the same value. The first column is the
// step. Text cells are names of sites and parameters, which need no quotes.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <functional>
#include <optional>

#include "core/error.h"
#include "io/file.h"

namespace normscope {

// Appends rows to a log, which has its header from the moment it exists. Rows gather in memory until flush()
// appends them with one write(2). A kill during that write can leave a partial last row, which readers leave
// out.
class CsvWriter {
 public:
  // Opens the log, or creates it with its header, `columns`. Error: another header, that of another version.
  CsvWriter(const std::string& path, const std::string& columns);

  // Checks the rows of the steps up to `last_step`, which were synced. Error, with the line, unless they are one
  // trajectory: each has the header's cells; steps never fall; no row agrees in its first `keys` cells with
  // the first of its step; every step has as many rows as the first; no step is missing for which is_due(step).
  void check(Index last_step, Index keys, const std::function<bool(Index)>& is_due);

  // Removes all that follows the rows checked: a kill tears later ones, and a power failure may leave zeros.
  // Call it before the first cell().
  void cut() { std::filesystem::resize_file(path_, size_); }

  void cell(std::string_view value) { rows_.append(value) += ','; }
  template <class Number>
  requires std::integral<Number> || std::floating_point<Number>
  void cell(Number value) {
    char digits[32];
    const char* end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    cell(std::isnan(value) ? "nan" : std::string_view(digits, end));  // the sign of a NaN means nothing
  }
  template <class Value>
  void cell(const std::optional<Value>& value) {  // without a value, an empty cell
    if (value) {
      cell(*value);
    } else {
      cell("");
    }
  }
  void end_row() { rows_.back() = '\n'; }

  void flush();  // to the kernel: survives a kill
  void sync();   // to the disk: survives a power cut; before a checkpoint that counts on these rows

 private:
  std::string path_;
  std::uintmax_t size_ = 0;  // bytes of the header and of whole rows in the file
  FileDescriptor file_;
  std::string rows_;  // not flushed yet
};

}  // namespace normscope
