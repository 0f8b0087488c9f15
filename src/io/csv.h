// Logs as CSV, with numbers in the shortest form that reads back to the same value. The first column is the
// step. Text cells are names of sites and parameters, which need no quotes.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
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

  // Removes all that follows the last row whose step is `last_step` or an earlier one: a kill tears such
  // rows, and a power failure may leave zeros. Error: a row before that one does not begin with a step; those
  // rows were synced. Call it before the first cell().
  void cut(Index last_step);

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
