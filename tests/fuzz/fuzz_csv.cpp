// The reader of logs, and the writer that goes on with one: what was read stays as it was, whatever is behind
// it.
#include <algorithm>

#include "core/error.h"
#include "fuzz.h"
#include "io/csv.h"

namespace normscope::fuzz {

const MemoryLimit memory_limit = {256 << 10, 256};  // a piece of the file is 64 KiB

namespace {

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

Table read(const std::string& path) {
  CsvReader reader(path);
  Table table{reader.columns(), {}};
  while (reader.next()) {
    table.rows.emplace_back();
    for (std::size_t column = 0; column < table.columns.size(); ++column)
      table.rows.back().push_back(reader.field(column));
  }
  return table;
}

}  // namespace

std::vector<std::string> seeds() {
  return {"step,loss\n1,2.5\n2,nan\n3,-inf\n", "a\n1\n22\n", "a,b\r\n4,5\r\n6,\r\n", "step\n0\n1\n7\ntorn",
          ",\n7,\n"};
}

void run(std::string_view bytes) {
  static const MemoryFile file;
  file.set(bytes);
  const Table table = read(file.path());
  if (table.columns.empty()) return;  // no header line
  for (std::size_t column = 0; column < table.columns.size(); ++column) {
    CsvReader reader(file.path());
    while (reader.next()) reader.number(column);
  }
  {
    CsvWriter writer(file.path(), table.columns, CsvWriter::Open::append);
    writer.truncate_after(3);
  }
  const Table rest = read(file.path());
  const bool prefix = rest.rows.size() <= table.rows.size() &&
                      std::equal(rest.rows.begin(), rest.rows.end(), table.rows.begin());
  expect(rest.columns == table.columns && prefix, "going on with a table keeps its first rows");
}

}  // namespace normscope::fuzz
