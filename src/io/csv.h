// CSV as RFC 4180 has it, with numbers in the shortest form that reads back to the same value.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "io/file.h"

namespace normscope {

// Appends rows to a file. Rows gather in memory until flush(), which hands them over in one write: a reader
// sees whole rows. So does who finds the file after a kill, unless that came within the write: Linux then
// leaves it at the end of a page. Opening mends such a torn row, and readers leave it out.
class CsvWriter {
 public:
  enum class Open {
    create,  // a new file, or an old one emptied: writes the header
    append,  // goes on after the last whole row; the header must be the same; a missing file is created
  };
  CsvWriter(const std::string& path, const std::vector<std::string>& columns, Open how);
  CsvWriter(CsvWriter&&) = default;
  ~CsvWriter();  // flushes; call flush() yourself where a failure must be heard

  // Drops every row whose first column, a step, is greater than `step`. Steps never fall from row to row.
  void truncate_after(Index step);

  // The rows since the last flush take the place of every row after `step`: all of them or, killed, none.
  void replace_after(Index step);

  // A whole row: writer.row(step, layer, "stream", mean, std::nullopt).
  template <class... Cells>
  void row(const Cells&... cells) {
    (cell(cells), ...);
    end_row();
  }

  // A row in parts, where the columns are only known at run time.
  void cell(double value);
  void cell(float value);
  void cell(std::string_view value);
  void cell(std::nullopt_t) { add(""); }  // empty
  template <std::integral Integer>
  void cell(Integer value) {
    char digits[24];
    add({digits, std::to_chars(digits, digits + sizeof digits, value).ptr});
  }
  template <class T>
  void cell(const std::optional<T>& value) {
    value ? cell(*value) : cell(std::nullopt);
  }
  void end_row();

  void flush();  // to the kernel: survives a kill
  void sync();   // to the disk: survives a power cut; before a checkpoint that counts on these rows

 private:
  void add(std::string_view cell);
  void cut(Index size);
  std::string rows_until(Index step) const;  // the file's bytes, header included

  std::string path_;
  std::size_t columns_;
  std::size_t cells_ = 0;  // of the row being built
  std::string buffer_;     // whole rows, then the row being built
  Index size_ = 0;         // bytes of whole rows in the file
  Descriptor file_;
};

struct CsvTable {
  std::string path;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as `columns`
  bool torn = false;  // the last line had no newline: a writer was stopped in it; it is left out

  std::optional<std::size_t> find(std::string_view column) const;
  std::size_t column(std::string_view name) const;  // Error if there is none

  // The cell as a number; nothing if it is empty; Error if it is anything else.
  std::optional<double> number(std::size_t row, std::size_t column) const;
};

CsvTable read_csv(const std::string& path);

}  // namespace normscope
