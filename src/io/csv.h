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
// appends them with one write(2). A kill during that write can leave a partial last row, which opening cuts
// off and readers leave out.
class CsvWriter {
 public:
  // Appends after the rows up to `last_step` and removes later ones; Error: another header. Without a step,
  // or without a file, creates the file with its header, `columns`.
  CsvWriter(const std::string& path, const std::string& columns, std::optional<Index> last_step);

  template <class... Cells>
  void row(const Cells&... cells) {
    (append(cells), ...);
    end_row();
  }
  // The same cell by cell.
  template <class Cell>
  void cell(const Cell& value) {
    append(value);
  }
  void end_row() { rows_.back() = '\n'; }

  void flush();  // to the kernel: survives a kill
  void sync();   // to the disk: survives a power cut; before a checkpoint that counts on these rows

 private:
  void append(std::string_view cell) { rows_.append(cell) += ','; }
  template <class Number>
  requires std::integral<Number> || std::floating_point<Number>
  void append(Number value) {
    char digits[32];
    const char* end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    append(std::isnan(value) ? "nan" : std::string_view(digits, end));  // the sign of a NaN means nothing
  }
  template <class T>
  void append(const std::optional<T>& value) {
    if (value) {
      append(*value);
    } else {
      append("");
    }
  }

  std::string path_;
  std::uintmax_t size_;  // bytes of whole rows in the file
  FileDescriptor file_;
  std::string rows_;  // not flushed yet
};

}  // namespace normscope
