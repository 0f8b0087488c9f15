// The config loader: a resolved config, dumped, loads to the same config. The input is a config, then --set
// options, each after a NUL, which no JSON holds.
#include "config/dump.h"
#include "config/load.h"
#include "core/error.h"
#include "fuzz.h"

namespace normscope::fuzz {

namespace {

const std::string label = NORMSCOPE_SOURCE_DIR "/configs/fuzz.json";  // of no file: paths are relative to it

}  // namespace

std::vector<std::string> seeds() {
  RunConfig all;  // every key
  all.name = "all";
  all.data.path = {"../data/austen.txt"};
  all.train.steps = all.train.batch_size = 2;
  using namespace std::string_literals;
  return {dump_text(all),
          R"({"extends": "deep_post.json", "model": {"norm": "rmsnorm"}})",
          R"({"model": {"n_layer": 2, "norm_placement": ["peri", "post"], "final_norm": "auto"}, // why
               "train": {"lr": 1e-2}})",
          R"({"$schema": "schema.json", "data": {"path": ["a b", "\u00e9"], "val_path": "v"}})",
          "{}\0model.norm=batchnorm\0train={\"steps\": 1e3}\0model.init.std=0.5\0data.path=text"s,
          "{}\0model.norm_placement=hybrid\0train.seed=9007199254740991\0model.branch_scale=L^-0.123456789"s,
          "\xEF\xBB\xBF{\"train\": {\"optimizer\": \"sgd\", \"momentum\": 0.5}}\0name=x"s};
}

void run(std::string_view bytes) {
  std::vector<std::string> parts(1);
  for (const char c : bytes) {
    if (c == '\0') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  const std::string json = parts.front();
  parts.erase(parts.begin());
  const LoadOptions model_only = {.need_data = false};
  const Loaded loaded = load_config_text(json, label, parts, model_only);
  const std::string dumped = dump_text(loaded.config);
  expect(dump_text(load_config_text(dumped, label, {}, model_only).config) == dumped,
         "a dumped config loads to itself");
  if (loaded.config.data.path.empty()) return;
  try {
    const Loaded whole = load_config_text(json, label, parts);
    expect(dump_text(whole.config) == dumped, "what data is at hand changes no value");
  } catch (const Error&) {  // a file or a key that a run needs is missing
  }
}

}  // namespace normscope::fuzz
