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

std::string message_of(const Csv& csv) {
  try {
    read_csv(csv.name());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
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

  const CsvTable table = read_csv(csv.name());
  REQUIRE(table.rows.size() == 4);
  CHECK(table.rows[3] == std::vector<std::string>{"a,b", "say \"x\"", "two\nlines", "cr\r", "plain", ""});
  CHECK(std::isnan(*table.number(1, 0)));
  CHECK(*table.number(1, 3) == -infinity);
  CHECK(!table.number(1, 4).has_value());
  CHECK(table.column("c") == 2);
  CHECK(!table.find("z"));
  CHECK_THROWS_AS(table.column("z"), Error);
  CHECK_THROWS_AS(table.number(0, 4), Error);
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
  const CsvTable table = read_csv(csv.name());
  int wrong = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const auto wide = std::bit_cast<double>(draws.bits(i));
    const auto narrow = std::bit_cast<float>(static_cast<std::uint32_t>(draws.bits(i)));
    const double a = *table.number(i, 0), b = *table.number(i, 1);
    wrong += std::isnan(wide) ? !std::isnan(a) : std::bit_cast<std::uint64_t>(a) != draws.bits(i);
    wrong += std::isnan(narrow) ? !std::isnan(b) : static_cast<float>(b) != narrow;
  }
  CHECK(wrong == 0);
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
  const std::string rows = "step,value\n1,1\n10,a\n10,b\n20,\"x\ny\"\n30,d\n";
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
  CHECK(cut(20) == "step,value\n1,1\n10,a\n10,b\n20,\"x\ny\"\n");
  CHECK(cut(30) == rows);
  CHECK(cut(30, "40,to") == rows);
  CHECK(cut(1000, "40") == rows);

  csv.set("step,value\n1,1\noops,2\n");
  CsvWriter writer = csv.open(two);
  CHECK_THROWS_WITH_AS(writer.truncate_after(5), doctest::Contains(":3: `oops` is not a step"), Error);
}

TEST_CASE("replace_after puts rows in the place of others") {
  const Csv csv;
  csv.set("step,value\n1,1\n10,a\n20,b\n");
  CsvWriter writer = csv.open(two);
  writer.row(15, 0);
  writer.row(20, 1);
  CHECK(csv.bytes() == "step,value\n1,1\n10,a\n20,b\n");
  writer.replace_after(10);
  CHECK(csv.bytes() == "step,value\n1,1\n10,a\n15,0\n20,1\n");
  writer.row(30, 2);
  writer.truncate_after(20);
  writer.row(40, 3);
  writer.flush();
  CHECK(csv.bytes() == "step,value\n1,1\n10,a\n15,0\n20,1\n40,3\n");
}

TEST_CASE("reading") {
  const Csv csv;
  csv.set("a,b\r\n1,\"x\"\"y\"\r\n,\"\"\r\n\"2\",z\r\n");
  const CsvTable table = read_csv(csv.name());
  CHECK(table.columns == std::vector<std::string>{"a", "b"});
  CHECK(table.rows == std::vector<std::vector<std::string>>{{"1", "x\"y"}, {"", ""}, {"2", "z"}});
  CHECK(!table.torn);

  for (const char* torn : {"1,2", "1", "\"1", "\"1\",\"2", "1,\"2\"", "1,2\r"}) {
    csv.set(std::string("a,b\n5,6\n") + torn);
    const CsvTable mended = read_csv(csv.name());
    CHECK(mended.torn);
    CHECK(mended.rows.size() == 1);
  }
  csv.set("a,b\n1,2\n\n");
  CHECK(message_of(csv).find(":3: 1 fields; expected 2") != std::string::npos);
  csv.set("a,b\n\"x\ny\",2\n1,2,3\n");
  CHECK(message_of(csv).find(":4: 3 fields; expected 2") != std::string::npos);
  csv.set("a,b\n\"x\"y,2\n");
  CHECK(message_of(csv).find(":2: text after the closing quote") != std::string::npos);
  csv.set("");
  CHECK(message_of(csv).find("no header") != std::string::npos);
  fs::remove(csv.path);
  CHECK(message_of(csv).starts_with("[csv] "));
}

TEST_CASE("a disk that is full is heard of") {
  CHECK_THROWS_WITH_AS(CsvWriter("/no/such/folder/x.csv", two, CsvWriter::Open::create),
                       doctest::Contains("No such file"), Error);
  if (fs::exists("/dev/full")) {
    CHECK_THROWS_WITH_AS(CsvWriter("/dev/full", two, CsvWriter::Open::create),
                         doctest::Contains("[csv] /dev/full"), Error);
  }
}
