// Rows written whole, numbers that round-trip, torn files mended.
#include <doctest/doctest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/random.h"
#include "io/csv.h"

namespace fs = std::filesystem;
using namespace normscope;

namespace {

struct Csv {
  fs::path path = fs::temp_directory_path() / ("normscope-" + std::to_string(::getpid()) + ".csv");
  Csv() { fs::remove(path); }
  ~Csv() { fs::remove(path); }
  std::string name() const { return path.string(); }
  std::string bytes() const { return read_file(name()); }
  void set(std::string_view bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
};

const std::vector<std::string> two = {"step", "value"};
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr Index all_steps = 1000;

// Every row of the file, and what stops the reading of them.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::string error;
};

Table table_of(const Csv& csv) {
  Table table;
  try {
    CsvReader reader(csv.name());
    table.columns = reader.columns();
    while (reader.next()) {
      table.rows.emplace_back();
      for (const std::string& column : table.columns) table.rows.back().push_back(reader.cell(column));
    }
  } catch (const Error& error) {
    table.error = error.what();
  }
  return table;
}

}  // namespace

TEST_CASE("cells of every kind") {
  CsvRows rows({"a", "b", "c", "d", "e", "f"});
  rows.row(1, Index{-2}, 0.1, 0.1f, "text", std::nullopt);
  rows.row(std::nan(""), -std::nan(""), infinity, -infinity, std::optional<double>(), std::optional(2.5));
  rows.row(std::uint64_t{1} << 63, 1e300, 1e-7f, -0.0, 100.0, 1u);
  rows.row("a,b", "say \"x\"", "two\nlines", "cr\r", std::string("plain"), "");
  CHECK(rows.header() == "a,b,c,d,e,f\n");
  CHECK(rows.text() ==
        "1,-2,0.1,0.1,text,\nnan,nan,inf,-inf,,2.5\n9223372036854775808,1e+300,1e-07,-0,100,1\n"
        "\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",\"cr\r\",plain,\n");
  CHECK_THROWS_WITH_AS(rows.row(1), doctest::Contains("a row of 1 cells; expected 6"), Error);
}

TEST_CASE("numbers read back to the same bits") {
  const Csv csv;
  const RandomStream draws(7, "csv");
  constexpr int n = 2000;
  CsvWriter writer(csv.name(), {"double", "float"});
  for (std::uint64_t i = 0; i < n; ++i) {
    writer.row(std::bit_cast<double>(draws.bits(i)),
               std::bit_cast<float>(static_cast<std::uint32_t>(draws.bits(i))));
  }
  writer.flush();
  CsvReader reader(csv.name());
  int wrong = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    REQUIRE(reader.next());
    const auto wide = std::bit_cast<double>(draws.bits(i));
    const auto narrow = std::bit_cast<float>(static_cast<std::uint32_t>(draws.bits(i)));
    const double a = *reader.number("double"), b = *reader.number("float");
    wrong += std::isnan(wide) ? !std::isnan(a) : std::bit_cast<std::uint64_t>(a) != draws.bits(i);
    wrong += std::isnan(narrow) ? !std::isnan(b) : static_cast<float>(b) != narrow;
  }
  CHECK(wrong == 0);
  CHECK(!reader.next());
}

TEST_CASE("rows reach the file at flush, whole") {
  const Csv csv;
  CsvWriter writer(csv.name(), two);
  CHECK(csv.bytes() == "step,value\n");
  writer.row(1, 2);
  CHECK(csv.bytes() == "step,value\n");
  writer.flush();
  CHECK(csv.bytes() == "step,value\n1,2\n");
  CsvWriter moved = std::move(writer);
  moved.row(3, 4);
  moved.sync();
  CHECK(csv.bytes() == "step,value\n1,2\n3,4\n");
  CsvWriter(csv.name(), two).sync();
  CHECK(csv.bytes() == "step,value\n");
}

TEST_CASE("going on mends a torn last line, drops later steps and checks the header") {
  const Csv csv;
  const auto go_on = [&](Index last_step, std::string_view before) {
    csv.set(before);
    CsvWriter writer(csv.name(), two, last_step);
    writer.row(99, 0);
    writer.flush();
    const std::string bytes = csv.bytes();
    REQUIRE(bytes.ends_with("99,0\n"));
    return bytes.substr(0, bytes.size() - 5);
  };
  for (const char* no_header : {"", "step,val", "step,value"})
    CHECK(go_on(all_steps, no_header) == "step,value\n");
  for (const char* torn : {"3,4", "3"})
    CHECK(go_on(all_steps, std::string("step,value\n1,2\n") + torn) == "step,value\n1,2\n");

  const std::string rows = "step,value\n1,1\n10,a\n10,b\n20,c\n30,d\n";
  CHECK(go_on(0, rows) == "step,value\n");
  CHECK(go_on(9, rows) == "step,value\n1,1\n");
  CHECK(go_on(10, rows) == "step,value\n1,1\n10,a\n10,b\n");
  CHECK(go_on(10, rows + "40,") == go_on(10, rows));
  CHECK(go_on(20, rows) == "step,value\n1,1\n10,a\n10,b\n20,c\n");
  CHECK(go_on(30, rows + "40,to") == rows);

  const auto refused = [&](const char* before, const char* why) {
    csv.set(before);
    CHECK_THROWS_WITH_AS(CsvWriter(csv.name(), two, 5), doctest::Contains(why), Error);
    CHECK(csv.bytes() == before);
  };
  refused("step,other\n1,2\n", "expected `step,value`");
  refused("step,value\n1,1\noops,2\n", ":3: step: `oops` is not a whole number");
  refused("step,value\n1,1\n-2,2\n", ":3: step: `-2` is not a whole number");
}

TEST_CASE("merge puts rows in the place of others of their steps") {
  const Csv csv;
  csv.set("step,value\n1,1\n10,a\n18,c\n18,d\n20,b\n20,b\n");
  CsvWriter writer(csv.name(), two, all_steps);
  writer.row(15, 0);
  writer.row(20, 1);
  CHECK(csv.bytes() == "step,value\n1,1\n10,a\n18,c\n18,d\n20,b\n20,b\n");
  writer.merge();
  CHECK(csv.bytes() == "step,value\n1,1\n10,a\n15,0\n18,c\n18,d\n20,1\n");
  writer.row(40, 3);
  writer.flush();
  CHECK(csv.bytes() == "step,value\n1,1\n10,a\n15,0\n18,c\n18,d\n20,1\n40,3\n");
}

TEST_CASE("reading") {
  const Csv csv;
  csv.set("a,b\n1,x\n,\n2,z\n");
  const Table table = table_of(csv);
  CHECK(table.columns == std::vector<std::string>{"a", "b"});
  CHECK(table.rows == std::vector<std::vector<std::string>>{{"1", "x"}, {"", ""}, {"2", "z"}});
  CsvReader reader(csv.name());
  REQUIRE(reader.next());
  CHECK(reader.count("a") == 1);
  CHECK_THROWS_WITH_AS(reader.number("b"), doctest::Contains(":2: b: `x` is not a number"), Error);
  CHECK_THROWS_WITH_AS(reader.number("z"), doctest::Contains("no column z"), Error);
  REQUIRE(reader.next());
  CHECK(!reader.number("a").has_value());

  for (const char* torn : {"1,2", "1"}) {
    csv.set(std::string("a,b\n5,6\n") + torn);
    CHECK(table_of(csv).rows == std::vector<std::vector<std::string>>{{"5", "6"}});
  }
  csv.set("a,b\n1,2\n\n");
  CHECK(table_of(csv).error.find(":3: 1 cells; expected 2") != std::string::npos);
  csv.set("a,b\n1,2,3\n");
  CHECK(table_of(csv).error.find(":2: 3 cells; expected 2") != std::string::npos);
  for (const char* no_header : {"", "a,b"}) {
    csv.set(no_header);
    CHECK(table_of(csv).columns.empty());
    CHECK(table_of(csv).error == "");
  }
  fs::remove(csv.path);
  CHECK(table_of(csv).error.starts_with("[csv] "));
}

TEST_CASE("the last rows are found wherever the bytes begin") {
  const Csv csv;
  csv.set("step,value\n1,a\n2,b\n3,c\ntorn");
  const auto first_of_last = [&](Index bytes) {
    CsvReader reader(csv.name());
    reader.skip_to_last(bytes);
    return reader.next() ? reader.count("step") : 0;
  };
  for (const auto& [bytes, step] : {std::pair<Index, Index>{0, 0},
                                    {4, 0},
                                    {7, 0},
                                    {8, 3},
                                    {11, 3},
                                    {12, 2},
                                    {15, 2},
                                    {16, 1},
                                    {20, 1},
                                    {1000, 1}}) {
    CHECK_MESSAGE(first_of_last(bytes) == step, bytes);
  }
}

TEST_CASE("a log is there with its header or not at all") {
  const Csv csv;
  const std::string temporary = temporary_path(csv.name());
  fs::create_directory(temporary);  // so that nothing can be written there
  CHECK_THROWS_AS(CsvWriter(csv.name(), two), Error);
  CHECK(!fs::exists(csv.path));
  csv.set("step,value\n1,1\n");
  CHECK_THROWS_AS(CsvWriter(csv.name(), two), Error);
  CHECK(csv.bytes() == "step,value\n1,1\n");
  fs::remove(temporary);
}

TEST_CASE("a disk that is full is heard of") {
  CHECK_THROWS_WITH_AS(CsvWriter("/no/such/folder/x.csv", two), doctest::Contains("No such file"), Error);
  const Csv csv;
  fs::create_symlink("/dev/full", csv.path);
  CHECK_THROWS_WITH_AS(CsvWriter(csv.name(), two), doctest::Contains("is not a file"), Error);
}
