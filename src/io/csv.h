// CSV as RFC 4180 has it, with numbers in the shortest form that reads back to the same value. The first
// column of a log is the step.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <vector>

#include "core/error.h"
#include "io/file.h"

namespace normscope {

// Rows as text, cell by cell.
class CsvRows {
 public:
  explicit CsvRows(std::vector<std::string> columns) : columns_(std::move(columns)) {}

  void cell(std::string_view value);         // quoted where it must be
  void cell(std::nullopt_t) { append(""); }  // empty
  template <std::integral Integer>
  void cell(Integer value) {
    append(std::to_string(value));
  }
  template <std::floating_point Real>
  void cell(Real value) {
    char digits[32];
    const char* end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    append(std::isnan(value) ? "nan" : std::string_view(digits, end));  // the sign of a NaN means nothing
  }
  template <class T>
  void cell(const std::optional<T>& value) {
    value ? cell(*value) : cell(std::nullopt);
  }
  void end_row();
  template <class... Cells>
  void row(const Cells&... cells) {
    (cell(cells), ...);
    end_row();
  }

  std::string header() const;                        // the columns' names and a newline
  const std::string& text() const { return text_; }  // without the header

 protected:
  std::string text_;  // whole rows, then the row being built

 private:
  void append(std::string_view cell);

  std::vector<std::string> columns_;
  std::size_t cells_ = 0;  // of the row being built
};

// Appends rows to a log, which has its header from the moment it exists. Rows gather in memory until flush()
// appends them with one write(2). A kill during that write can leave a partial last row, which opening cuts
// off and readers leave out.
class CsvWriter : public CsvRows {
 public:
  // Appends after `last_step` and truncates later rows; Error: another header. Without it, or without a file,
  // creates the file with its header.
  CsvWriter(const std::string& path, const std::vector<std::string>& columns,
            std::optional<Index> last_step = std::nullopt);

  void flush();  // to the kernel: survives a kill
  void sync();   // to the disk: survives a power cut; before a checkpoint that counts on these rows

 private:
  void cut(Index size);

  std::string path_;
  Index size_ = 0;  // bytes of whole rows in the file
  FileDescriptor file_;
};

}  // namespace normscope
