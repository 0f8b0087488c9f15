// Rows written whole, numbers that round-trip, torn files mended.
#include <doctest/doctest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

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
  std::istringstream rows(csv.bytes());
  std::string row;
  std::getline(rows, row);
  int wrong = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    REQUIRE(std::getline(rows, row));
    const std::size_t comma = row.find(',');
    const auto wide = std::bit_cast<double>(draws.bits(i));
    const auto narrow = std::bit_cast<float>(static_cast<std::uint32_t>(draws.bits(i)));
    const double a = std::strtod(row.c_str(), nullptr);
    const float b = std::strtof(row.c_str() + comma + 1, nullptr);
    wrong += std::isnan(wide) ? !std::isnan(a) : std::bit_cast<std::uint64_t>(a) != draws.bits(i);
    wrong += std::isnan(narrow) ? !std::isnan(b) : b != narrow;
  }
  CHECK(wrong == 0);
  CHECK(!std::getline(rows, row));
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
  refused("step,value\n1,1\noops,2\n", "a row begins `oops,2");
}

TEST_CASE("a log is there with its header or not at all") {
  const Csv csv;
  const std::string temporary = AtomicFile::temporary_path(csv.name());
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
