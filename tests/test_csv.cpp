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
  CsvWriter open(std::vector<std::string> columns, CsvWriter::Open how = CsvWriter::Open::append) const {
    return {name(), columns, how};
  }
};

const std::vector<std::string> two = {"step", "value"};
constexpr double infinity = std::numeric_limits<double>::infinity();

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
      for (std::size_t i = 0; i < table.columns.size(); ++i) table.rows.back().push_back(reader.field(i));
    }
  } catch (const Error& error) {
    table.error = error.what();
  }
  return table;
}

}  // namespace

TEST_CASE("cells of every kind") {
  const Csv csv;
  CsvWriter writer = csv.open({"a", "b", "c", "d", "e", "f"}, CsvWriter::Open::create);
  writer.row(1, Index{-2}, 0.1, 0.1f, "text", std::nullopt);
  writer.row(std::nan(""), -std::nan(""), infinity, -infinity, std::optional<double>(), std::optional(2.5));
  writer.row(std::uint64_t{1} << 63, 1e300, 1e-7f, -0.0, 100.0, 1u);
  writer.row("a,b", "say \"x\"", "two\nlines", "cr\r", std::string("plain"), "");
  writer.flush();
  CHECK(csv.bytes() ==
        "a,b,c,d,e,f\n1,-2,0.1,0.1,text,\nnan,nan,inf,-inf,,2.5\n9223372036854775808,1e+300,1e-07,-0,100,1\n"
        "\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",\"cr\r\",plain,\n");

  CsvReader reader(csv.name());
  CHECK(reader.columns() == std::vector<std::string>{"a", "b", "c", "d", "e", "f"});
  CHECK(reader.column("c") == 2);
  CHECK_THROWS_AS(reader.column("z"), Error);
  REQUIRE(reader.next());
  CHECK(reader.first() == "1");
  CHECK_THROWS_WITH_AS(reader.number(4), doctest::Contains(":2: e: `text` is not a number"), Error);
  REQUIRE(reader.next());
  CHECK(std::isnan(*reader.number(0)));
  CHECK(*reader.number(3) == -infinity);
  CHECK(!reader.number(4).has_value());
}

TEST_CASE("numbers read back to the same bits") {
  const Csv csv;
  const RandomStream draws(7, "csv");
  constexpr int n = 2000;
  CsvWriter writer = csv.open({"double", "float"});
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
    const double a = *reader.number(0), b = *reader.number(1);
    wrong += std::isnan(wide) ? !std::isnan(a) : std::bit_cast<std::uint64_t>(a) != draws.bits(i);
    wrong += std::isnan(narrow) ? !std::isnan(b) : static_cast<float>(b) != narrow;
  }
  CHECK(wrong == 0);
  CHECK(!reader.next());
}

TEST_CASE("rows reach the file at flush, whole") {
  const Csv csv;
  {
    CsvWriter writer = csv.open(two);
    CHECK(csv.bytes() == "step,value\n");
    writer.row(1, 2);
    CHECK(csv.bytes() == "step,value\n");
    writer.flush();
    CHECK(csv.bytes() == "step,value\n1,2\n");
    CHECK_THROWS_AS(writer.row(1), Error);  // too few cells
  }
  CHECK(csv.bytes() == "step,value\n1,2\n");  // half a row is not flushed at the end
  {
    CsvWriter writer = csv.open(two);
    writer.row(2, 3);
    CsvWriter moved = std::move(writer);
    moved.row(3, 4);
  }
  CHECK(csv.bytes() == "step,value\n1,2\n2,3\n3,4\n");
  csv.open(two, CsvWriter::Open::create).sync();
  CHECK(csv.bytes() == "step,value\n");
}

TEST_CASE("appending mends a torn last line and checks the header") {
  const Csv csv;
  const auto append = [&](std::string_view before) {
    csv.set(before);
    csv.open(two).row(9, 9);
    return csv.bytes();
  };
  CHECK(append("") == "step,value\n9,9\n");
  CHECK(append("step,val") == "step,value\n9,9\n");
  CHECK(append("step,value") == "step,value\n9,9\n");
  CHECK(append("step,value\n1,2\n3,4") == "step,value\n1,2\n9,9\n");
  CHECK(append("step,value\n1,2\n3") == "step,value\n1,2\n9,9\n");
  CHECK(append("step,value\r\n1,2\r\n3,4\r") == "step,value\r\n1,2\r\n9,9\n");
  csv.set("step,other\n1,2\n");
  CHECK_THROWS_WITH_AS(csv.open(two), doctest::Contains("expected `step,value`"), Error);
  CHECK(csv.bytes() == "step,other\n1,2\n");
}

TEST_CASE("truncate_after drops the steps a checkpoint does not know") {
  const Csv csv;
  const std::string rows = "step,value\n1,1\n10,a\n10,b\n20,c\n30,d\n";
  const auto cut = [&](Index step, const std::string& torn = "") {
    csv.set(rows + torn);
    CsvWriter writer = csv.open(two);
    writer.truncate_after(step);
    writer.row(99, 0);
    writer.flush();
    const std::string bytes = csv.bytes();
    REQUIRE(bytes.ends_with("99,0\n"));
    return bytes.substr(0, bytes.size() - 5);
  };
  CHECK(cut(0) == "step,value\n");
  CHECK(cut(9) == "step,value\n1,1\n");
  CHECK(cut(10) == "step,value\n1,1\n10,a\n10,b\n");
  CHECK(cut(10, "40,") == cut(10));
  CHECK(cut(20) == "step,value\n1,1\n10,a\n10,b\n20,c\n");
  CHECK(cut(30) == rows);
  CHECK(cut(30, "40,to") == rows);
  CHECK(cut(1000, "40") == rows);

  csv.set("step,value\n1,1\noops,2\n");
  CsvWriter writer = csv.open(two);
  CHECK_THROWS_WITH_AS(writer.truncate_after(5), doctest::Contains(":3: `oops` is not a step"), Error);
}

TEST_CASE("merge_after puts rows in the place of others of their steps") {
  const Csv csv;
  csv.set("step,value\n1,1\n10,a\n18,c\n18,d\n20,b\n20,b\n");
  CsvWriter writer = csv.open(two);
  writer.row(15, 0);
  writer.row(20, 1);
  CHECK(csv.bytes() == "step,value\n1,1\n10,a\n18,c\n18,d\n20,b\n20,b\n");
  writer.merge_after(10);
  CHECK(csv.bytes() == "step,value\n1,1\n10,a\n15,0\n18,c\n18,d\n20,1\n");
  writer.row(30, 2);
  writer.truncate_after(20);
  writer.row(40, 3);
  writer.flush();
  CHECK(csv.bytes() == "step,value\n1,1\n10,a\n15,0\n18,c\n18,d\n20,1\n40,3\n");
}

TEST_CASE("reading") {
  const Csv csv;
  csv.set("a,b\r\n1,x\r\n,\r\n2,z\r\n");
  const Table table = table_of(csv);
  CHECK(table.columns == std::vector<std::string>{"a", "b"});
  CHECK(table.rows == std::vector<std::vector<std::string>>{{"1", "x"}, {"", ""}, {"2", "z"}});

  for (const char* torn : {"1,2", "1", "1,2\r"}) {
    csv.set(std::string("a,b\n5,6\n") + torn);
    CHECK(table_of(csv).rows == std::vector<std::vector<std::string>>{{"5", "6"}});
  }
  csv.set("a,b\n1,2\n\n");
  CHECK(table_of(csv).error.find(":3: 1 fields; expected 2") != std::string::npos);
  csv.set("a,b\n1,2,3\n");
  CHECK(table_of(csv).error.find(":2: 3 fields; expected 2") != std::string::npos);
  for (const char* no_header : {"", "a,b"}) {
    csv.set(no_header);
    CHECK(table_of(csv).columns.empty());
    CHECK(table_of(csv).error == "");
  }
  fs::remove(csv.path);
  CHECK(table_of(csv).error.starts_with("[csv] "));
}

TEST_CASE("rows are read whole wherever a piece of the file ends") {
  const Csv csv;
  std::string bytes = "step,value\n";
  for (int row = 0; std::ssize(bytes) < 300'000; ++row) {
    bytes += std::to_string(row) + "," + std::string(static_cast<std::size_t>(row % 701), 'x') + "\n";
  }
  csv.set(bytes + "torn");
  CsvReader reader(csv.name());
  Index row = 0, wrong = 0;
  for (; reader.next(); ++row) {
    wrong += reader.first() != std::to_string(row) || std::ssize(reader.field(1)) != row % 701;
  }
  CHECK(wrong == 0);
  CHECK(reader.end() == std::ssize(bytes));
  CHECK(reader.line() == row + 1);
}

TEST_CASE("a log is there with its header or not at all") {
  const Csv csv;
  const std::string temporary = temporary_path(csv.name());
  fs::create_directory(temporary);  // so that nothing can be written there
  CHECK_THROWS_AS(csv.open(two, CsvWriter::Open::create), Error);
  CHECK(!fs::exists(csv.path));
  csv.set("step,value\n1,1\n");
  CHECK_THROWS_AS(csv.open(two, CsvWriter::Open::create), Error);
  CHECK(csv.bytes() == "step,value\n1,1\n");
  fs::remove(temporary);
}

TEST_CASE("a disk that is full is heard of") {
  CHECK_THROWS_WITH_AS(CsvWriter("/no/such/folder/x.csv", two, CsvWriter::Open::create),
                       doctest::Contains("No such file"), Error);
  const Csv csv;
  fs::create_symlink("/dev/full", csv.path);
  CHECK_THROWS_WITH_AS(csv.open(two, CsvWriter::Open::create), doctest::Contains("is not a file"), Error);
}
