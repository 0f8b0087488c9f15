// CSV as RFC 4180 has it, with numbers in the shortest form that reads back to the same value.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "io/file.h"

namespace normscope {

// Rows as text.
class CsvRows {
 public:
  explicit CsvRows(std::vector<std::string> columns) : columns_(std::move(columns)) {}

  // A whole row: rows.row(step, layer, "stream", mean, std::nullopt).
  template <class... Cells>
  void row(const Cells&... cells) {
    (cell(cells), ...);
    end_row();
  }

  // A row in parts, where the columns are only known at run time.
  void cell(std::string_view value);
  void cell(std::nullopt_t) { add(""); }  // empty
  template <std::integral Integer>
  void cell(Integer value) {
    char digits[24];
    add({digits, std::to_chars(digits, digits + sizeof digits, value).ptr});
  }
  template <std::floating_point Real>
  void cell(Real value) {
    char digits[32];
    const char* end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    add(std::isnan(value) ? "nan" : std::string_view(digits, end));  // the sign of a NaN means nothing
  }
  template <class T>
  void cell(const std::optional<T>& value) {
    value ? cell(*value) : cell(std::nullopt);
  }
  void end_row();

  std::string header() const;                        // the columns' names and a newline
  const std::string& text() const { return text_; }  // without the header

 protected:
  std::vector<std::string> columns_;
  std::size_t cells_ = 0;  // of the row being built
  std::string text_;       // whole rows, then the row being built

 private:
  void add(std::string_view cell);
};

// Appends rows to a file, which has its header from the moment it exists. Rows gather in memory until
// flush(), which hands them over in one write: a reader sees whole rows. So does who finds the file after a
// kill, unless that came within the write: Linux then leaves it at the end of a page. Opening mends such a
// torn row, and readers leave it out.
class CsvWriter : public CsvRows {
 public:
  enum class Open {
    create,  // a new file, or in the place of an old one
    append,  // goes on after the last whole row; the header must be the same; a missing file is created
  };
  CsvWriter(const std::string& path, const std::vector<std::string>& columns, Open how);
  CsvWriter(CsvWriter&&) = default;
  ~CsvWriter();  // flushes; call flush() yourself where a failure must be heard

  // Drops every row whose first column, a step, is greater than `step`. Steps never fall from row to row.
  void truncate_after(Index step);

  // The rows since the last flush, all of steps after `step`, take the place of the file's rows of the same
  // steps, or come between those of other steps: all of them or, killed, none.
  void merge_after(Index step);

  void flush();  // to the kernel: survives a kill
  void sync();   // to the disk: survives a power cut; before a checkpoint that counts on these rows

 private:
  void open();
  void cut(Index size);
  Index size_until(Index step) const;  // bytes, header included

  std::string path_;
  Index size_ = 0;  // bytes of whole rows in the file
  FileDescriptor file_;
};

// Reads a log row by row and holds one at a time. Fields are taken as they stand, because no log quotes any.
// A last line without a newline is torn: a writer was killed in it, and it is left out.
class CsvReader {
 public:
  explicit CsvReader(const std::string& path);

  const std::vector<std::string>& columns() const { return columns_; }  // empty: there is no header line
  std::size_t column(std::string_view name) const;                      // Error if there is none

  // Goes on with the first row that begins in the last `bytes` of the file.
  void skip_to_last(Index bytes);

  bool next();                          // the next row; false: there is none
  Index line() const { return line_; }  // of the file, from 1, where the row stands
  Index end() const { return end_; }    // bytes up to the end of the row
  const std::string& first() const { return fields_[0]; }
  const std::string& field(std::size_t column) const;  // Error if the row has not a field a column

  // The field as a number; nothing if it is empty; Error if it is anything else.
  std::optional<double> number(std::size_t column) const;

  template <class... Parts>
  [[noreturn]] void stop(const Parts&... what) const {
    fail("csv", shown_path_, ":", line_, ": ", what...);
  }

 private:
  std::string shown_path_;
  FileDescriptor file_;
  std::string piece_;   // of the file, from its byte end_
  std::size_t at_ = 0;  // in piece_: where the next row begins
  Index read_ = 0, end_ = 0, line_ = 0;
  std::vector<std::string> columns_, fields_;
};

}  // namespace normscope
