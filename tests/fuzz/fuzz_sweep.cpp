// The reader of sweep files: every run has a folder of its own, and its config is the base with what it sets.
#include <algorithm>
#include <set>

#include "config/dump.h"
#include "config/load.h"
#include "config/sweep.h"
#include "fuzz.h"

namespace normscope::fuzz {

const MemoryLimit memory_limit = {2 << 20, 1024};

std::vector<std::string> seeds() {
  return {R"({"base": "quickstart.json"})",
          R"({"name": "s", "base": "deep_pre.json", "seeds": [1, 2],
              "grid": {"model.norm_placement": ["pre", "post"], "model.n_layer": [1, 2e0]}})",
          R"({"base": "quickstart.json", "grid": {"train.lr": [0.1], "train.min_lr": [0, 1e-9]},
              "cases": [{"name": "a b/", "set": {"model.norm": "none", "train.min_lr": 0.5}}, {"name": "c", "set": {}}]})"};
}

void run(std::string_view bytes) {
  constexpr std::size_t most = 60;  // so that one input cannot ask for a minute
  constexpr const char* file = NORMSCOPE_SOURCE_DIR "/configs/fuzz.json";
  const Sweep sweep =
      load_sweep(file, JsonDocument::parse(std::string(bytes), file, "sweep"), {.most = most});
  expect(!sweep.runs.empty() && sweep.runs.size() <= most, "a sweep has runs, and not too many");
  std::set<std::string> names;
  for (const SweepRun& one : sweep.runs) {
    const auto plain = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) ||
             std::string_view("._=+-").find(c) != std::string_view::npos;
    };
    expect(!one.name.empty() && one.name.size() <= 100 && one.name[0] != '.' &&
               std::all_of(one.name.begin(), one.name.end(), plain),
           "a run's name can name a folder");
    expect(names.insert(one.name).second && one.config.name == one.name, "and no other run has it");
    for (const std::string& key : sweep.varied_keys) value_text(one.config, key);
  }
  const SweepRun& last = sweep.runs.back();
  expect(dump_text(load_config(sweep.base, last.sets).config) == dump_text(last.config),
         "its sets make its config");
}

}  // namespace normscope::fuzz
