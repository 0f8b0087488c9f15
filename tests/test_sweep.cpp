// Sweep files that ask for too much, or are wrong all over: refused at once, in a few lines.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "config/sweep.h"
#include "messages.h"

namespace fs = std::filesystem;
using namespace normscope;
using namespace normscope::testing;

namespace {

const std::string base = R"({"base": "quickstart.json")";

std::string list_of(int n) {
  std::string list = "[0";
  for (int i = 1; i < n; ++i) list += "," + std::to_string(i);
  return list + "]";
}

// A sweep beside the configs: how many runs it has, or why none.
Sweep load(const std::string& text, std::size_t most = max_runs) {
  const fs::path file = fs::path(NORMSCOPE_SOURCE_DIR) / "configs" / "s.json";
  return load_sweep(file, JsonDocument::parse(text, file.string(), "sweep"), {.most = most});
}
std::string refusal(const std::string& text, std::size_t most = max_runs) {
  return message([&] { load(text, most); });
}

}  // namespace

TEST_CASE("sweep: the number of runs has a limit, seeds and cases counted") {
  const std::string cases =
      R"(, "cases": [{"name": "a", "set": {}}, {"name": "b", "set": {"train.lr": 0.1}}])";
  CHECK(load(base + cases + R"(, "seeds": [1, 2]})", 4).runs.size() == 4);
  CHECK(holds(refusal(base + cases + R"(, "seeds": [1, 2, 3]})", 5), "more than 5 runs; split the sweep"));
  CHECK(holds(refusal(base + cases + "}", 1), "more than 1 runs"));
  CHECK(holds(refusal(base + R"(, "grid": {"train.lr": [0.1, 0.2], "train.min_lr": [0, 0.1]}})", 3),
              "more than 3 runs"));
}

TEST_CASE("sweep: a megabyte of mistakes takes no time" * doctest::timeout(30)) {
  CHECK(holds(refusal(base + ", \"seeds\": " + list_of(150'000) + "}"), "more than 10000 runs"));
  std::string unknown = base;
  for (int i = 0; i < 80'000; ++i) unknown += ",\"k" + std::to_string(i) + "\":1";
  const std::string said = refusal(unknown + "}");
  CHECK(std::count(said.begin(), said.end(), '\n') == 40);
  CHECK(holds(said, "[sweep] and 79960 more"));
}

TEST_CASE("sweep: a path with a NUL character is no path") {
  CHECK(holds(refusal(R"({"base": "quickstart.json\u0000"})"), "base: got \"quickstart.json"));
}
