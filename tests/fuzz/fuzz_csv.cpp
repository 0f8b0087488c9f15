// The reader of logs, and the writer that goes on with one: what was read stays as it was, whatever is behind
// it.
#include <algorithm>

#include "core/error.h"
#include "fuzz.h"
#include "io/csv.h"

namespace normscope::fuzz {

const MemoryLimit memory_limit = {256 << 10, 256};

namespace {

using Rows = std::vector<std::vector<std::string>>;

// What the reader takes for whole rows of the file, from the header on.
Rows read(const std::string& path) {
  CsvReader reader(path);
  Rows rows = {reader.columns()};
  while (reader.next()) {
    rows.emplace_back();
    for (const std::string& column : reader.columns()) rows.back().push_back(reader.cell(column));
  }
  return rows;
}

}  // namespace

std::vector<std::string> seeds() {
  return {"step,loss\n1,2.5\n2,nan\n3,-inf\n", "step\n1\n22\n", "a,b\n4,5\n6,\n", "step\n0\n1\n7\ntorn",
          ",\n7,\n"};
}

void run(std::string_view bytes) {
  static const MemoryFile file;
  file.set(bytes);
  const Rows rows = read(file.path());
  if (rows[0].empty()) return;  // no header line
  for (const std::string& column : rows[0]) {
    CsvReader reader(file.path());
    while (reader.next()) reader.number(column);
  }
  if (rows[0][0] != "step") return;
  { CsvWriter writer(file.path(), rows[0], /*last_step=*/3); }
  const Rows kept = read(file.path());
  expect(kept.size() <= rows.size() && std::equal(kept.begin(), kept.end(), rows.begin()),
         "going on with a log keeps its first rows");
}

}  // namespace normscope::fuzz
