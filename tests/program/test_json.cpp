// JSON as it is read: refusals with their places. Damaged texts: fuzz/fuzz_config.cpp.
#include <string>

#include "io/json.h"
#include "messages.h"

using namespace normscope;
using namespace normscope::testing;

namespace {

std::string fails(const std::string& text) {
  return message([&] { parse_json(text, "f", "test"); });
}

}  // namespace

TEST_CASE("json: a refusal says what is wrong, and where") {
  CHECK(fails("{\"a\": 1,\n \"b\": {\"a\": 2, \"a\": 3}}") == "[test] f: duplicate key \"a\"");
  CHECK(fails("{\"a\": {\"a\": 1}, \"b\": [{\"a\": 2}]}") == "no error");
  CHECK_HOLDS(fails("[1, 1e400]"), "number overflow");
  CHECK_HOLDS(fails("[NaN]"), "line 1, column 2: syntax error");
  CHECK(fails(std::string("{}\0 garbage", 11)) == "[test] f: contains a NUL byte");
  CHECK_HOLDS(fails("{\"a\": \"\xFF\"}"), "UTF-8");
  CHECK_HOLDS(fails("{} {}"), "line 1, column 4: syntax error");
  CHECK_HOLDS(fails("{\"a\": 1,}"), "syntax error");
  CHECK(fails("{\"a\": 1\n \"b\": 2}") ==
        "[test] f: parse error at line 2, column 4: a comma is missing before this");
  for (const char* written : {"[1\n 2]", "[[1]\n [2]]", "[{}\n {}]", "[1\n true]"})
    CHECK_HOLDS(fails(written), ": a comma is missing before this");
  for (const char* written : {"[1}", "{\"a\": 1]", "[1", "{\"a\" 1}", "[1:2]", "1 2"})
    CHECK_HOLDS(fails(written), "syntax error");
  CHECK_HOLDS(fails(""), "unexpected end of input");
  CHECK_HOLDS(fails("{/* no end"), "syntax error");
  CHECK(fails("\"" + std::string(500, 'x') + "\n\"").size() < 350);
}

TEST_CASE("json: 64 levels of nesting are read, more are refused") {
  const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  CHECK_NOTHROW(parse_json(nested(64), "f", "test"));
  CHECK(fails(nested(65)) == "[test] f: more than 64 levels of nesting");
  CHECK(fails(std::string(1'000'000, '[')) == "[test] f: more than 64 levels of nesting");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  CHECK(fails(objects) == "[test] f: more than 64 levels of nesting");
}
