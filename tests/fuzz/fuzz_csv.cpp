// The CSV reader and the writer that goes on with a file: what was read is written and read again as it was.
#include <algorithm>

#include "core/error.h"
#include "fuzz.h"
#include "io/csv.h"

namespace normscope::fuzz {

const MemoryLimit memory_limit = {64 << 10, 256};

namespace {

// Whether the last newline ends a row: none stands inside a cell. The writer's files are such.
bool one_line_a_row(const CsvTable& table) {
  const auto plain = [](const std::vector<std::string>& cells) {
    return std::none_of(cells.begin(), cells.end(),
                        [](const auto& cell) { return cell.find_first_of("\n\"") != cell.npos; });
  };
  return plain(table.columns) && std::all_of(table.rows.begin(), table.rows.end(), plain);
}

void write(const CsvTable& table, const std::string& path) {
  CsvWriter writer(path, table.columns, CsvWriter::Open::create);
  for (const auto& cells : table.rows) {
    for (const std::string& cell : cells) writer.cell(cell);
    writer.end_row();
  }
  writer.flush();
}

}  // namespace

std::vector<std::string> seeds() {
  return {"step,loss\n1,2.5\n2,nan\n3,-inf\n", "a\n\"\"\n\n", "a,b\r\n\"x,\"\"y\"\"\n\",\r\n",
          "step\n0\n1\n7\ntorn", ",\n,\n\"\",\"\"\n"};
}

void run(std::string_view bytes) {
  static const MemoryFile file, copy;
  file.set(bytes);
  const CsvTable table = read_csv(file.path());
  for (const auto& cells : table.rows)
    expect(cells.size() == table.columns.size(), "rows have a cell a column");

  write(table, copy.path());
  const CsvTable again = read_csv(copy.path());
  expect(again.columns == table.columns && again.rows == table.rows && !again.torn,
         "a table written is read the same");

  if (!one_line_a_row(table) || bytes.find('"') != bytes.npos) return;
  {
    CsvWriter writer(file.path(), table.columns, CsvWriter::Open::append);
    writer.truncate_after(3);
  }
  const CsvTable rest = read_csv(file.path());
  const bool prefix = rest.rows.size() <= table.rows.size() &&
                      std::equal(rest.rows.begin(), rest.rows.end(), table.rows.begin());
  expect(rest.columns == table.columns && prefix && !rest.torn, "going on with a table keeps its first rows");
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    for (std::size_t column = 0; column < table.columns.size(); ++column) table.number(row, column);
  }
}

}  // namespace normscope::fuzz
