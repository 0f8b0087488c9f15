// JSON as it is read: places of values, what is refused and where, and that nothing crashes it.
#include <string>

#include "config/dump.h"
#include "config/load.h"
#include "io/json.h"
#include "messages.h"

using namespace normscope;
using namespace normscope::testing;
using nlohmann::json;

namespace {

std::string fails(const std::string& text) {
  return message([&] { JsonDocument::parse(text, "f", "test"); });
}

}  // namespace

TEST_CASE("json: values know their line and column") {
  const JsonDocument source = JsonDocument::parse(
      "\xEF\xBB\xBF{ // \"a\": comment\n  \"a\": 1,\n  \"\xC3\xA9\": \"x\\\"y\", \"list\": [1.5,/*,*/ "
      "true,\n [null], {\"d\": -1}]\n}",
      "f", "test");
  const json& root = source.root();
  CHECK(source.where(root) == "f");
  CHECK(source.where(root["a"]) == "f:2:3");
  CHECK(source.where(root["\xC3\xA9"]) == "f:3:3");
  CHECK(source.where(root["list"]) == "f:3:16");
  CHECK(source.where(root["list"][0]) == "f:3:25");
  CHECK(source.where(root["list"][1]) == "f:3:35");
  CHECK(source.where(root["list"][2][0]) == "f:4:3");
  CHECK(source.where(root["list"][3]["d"]) == "f:4:11");
  const JsonDocument bom_line = JsonDocument::parse("\xEF\xBB\xBF{\"a\": 1}", "f", "test");
  CHECK(bom_line.where(bom_line.root()["a"]) == "f:1:2");
}

TEST_CASE("json: what is refused, and where") {
  CHECK(fails("{\"a\": 1,\n \"b\": {\"a\": 2, \"a\": 3}}") ==
        "[test] f:2:16: duplicate key \"a\"; the first is at f:2:8");
  CHECK(fails("[1, 1e400]") == "[test] f:1:5: the number 1e400 does not fit a double");
  CHECK(fails("[1, -1e400]") == "[test] f:1:5: the number -1e400 does not fit a double");
  CHECK(fails("[NaN]") == "[test] f:1:2: NaN is not a JSON number; expected a finite number");
  CHECK_HOLDS(fails("{\"a\":\n -Infinity}"), "f:2:3: -Infinity is not a JSON number");
  CHECK(fails(std::string("{}\0 garbage", 11)) == "[test] f:1:3: a NUL byte");
  CHECK(fails("{\"a\": \"\xFF\"}") == "[test] f:1:8: a byte that is not UTF-8");
  CHECK(fails("{} // \xED\xA0\x80") == "[test] f:1:7: a byte that is not UTF-8");
  CHECK_HOLDS(fails("{} {}"), "[test] f:1:4: syntax error");
  CHECK_HOLDS(fails("{\"a\": 1,}"), "f:1:9: syntax error");
  CHECK_HOLDS(fails("{\"a\" 1}"), "f:1:6: syntax error");
  CHECK_HOLDS(fails(""), "f:1:1: syntax error");
  CHECK_HOLDS(fails("{\"a\": \"x\ny\"}"), "f:1:9: syntax error");
  CHECK_HOLDS(fails("{/* no end"), "syntax error");
  CHECK(fails("\"" + std::string(500, 'x') + "\n\"").size() < 250);
  CHECK(fails(std::string(JsonLimits{}.bytes + 1, ' ')) == "[test] f: is larger than 1048576 bytes");
}

TEST_CASE("json: depth") {
  const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  CHECK_NOTHROW(JsonDocument::parse(nested(64), "f", "test"));
  CHECK(fails(nested(65)) == "[test] f:1:65: more than 64 levels of nesting");
  CHECK(fails(std::string(1'000'000, '[')) == "[test] f:1:65: more than 64 levels of nesting");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  CHECK(fails(objects) == "[test] f:1:321: more than 64 levels of nesting");
}

TEST_CASE("json: any cut or damaged text is an error or a tree, never a crash") {
  const std::string whole =
      dump_text(RunConfig{}) + "// \xC3\xA9 /* */ [1e3, \"\\u00e9\\\\\", -0.5E-2, null]";
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    fails(whole.substr(0, cut));
    fails(whole.substr(cut));
    constexpr std::string_view bytes("\0\"\\/}[,9\xC3", 9);
    std::string damaged = whole;
    damaged[cut] = bytes[cut % bytes.size()];
    message([&] { load_config_text(damaged, "a.json", {}, {.need_data = false}); });
  }
}
