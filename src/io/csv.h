// CSV as RFC 4180 has it, with numbers in the shortest form that reads back to the same value. The program
// reads only logs that it wrote itself: they quote nothing, and their first column is the step.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <fstream>
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

// Reads a log row by row. A last line without a newline is torn, since its writer was killed in it: it is
// left out.
class CsvReader {
 public:
  explicit CsvReader(const std::string& path);

  const std::vector<std::string>& columns() const { return columns_; }  // empty: there is no header line

  void skip_to_last(Index bytes);  // goes on with the first row that begins in the last `bytes` of the file

  bool next();  // the next row; false: there is none. Error: it has not a cell a column

  // Cells of the current row. Errors: there is no such column, or the cell has another type.
  const std::string& cell(std::string_view column) const;
  std::optional<double> number(std::string_view column) const;  // nothing where the cell is empty
  Index count(std::string_view column) const;                   // a whole number
  Index end() const { return end_; }                            // bytes of the file up to the row's end

  template <class... Parts>
  [[noreturn]] void stop(const Parts&... what) const {
    fail("csv", shown_path_, ":", line_, ": ", what...);
  }

 private:
  std::string shown_path_;
  std::ifstream file_;
  Index end_ = 0, line_ = 0;
  std::vector<std::string> columns_, cells_;
};

// Appends rows to a log, which has its header from the moment it exists. Rows gather in memory until flush()
// appends them with one write(2). A kill during that write can leave a partial last row, which opening cuts
// off and readers leave out.
class CsvWriter : public CsvRows {
 public:
  // `last_step`: goes on after the file's rows of steps up to it, and drops those behind; the header must be
  // the same, or an earlier version's, which had the first of these columns: its rows get empty cells in the
  // others. Otherwise, and where there is no such file, begins a new one in its place.
  CsvWriter(const std::string& path, const std::vector<std::string>& columns,
            std::optional<Index> last_step = std::nullopt);

  // Puts the rows since the last flush in the place of the file's rows of the same steps, or between those of
  // other steps: all of them or, killed, none.
  void merge();

  void flush();  // to the kernel: survives a kill
  void sync();   // to the disk: survives a power cut; before a checkpoint that counts on these rows

 private:
  void open();
  void cut(Index size);

  std::string path_;
  Index size_ = 0;  // bytes of whole rows in the file
  FileDescriptor file_;
};

}  // namespace normscope
