// A sweep: a grid of runs and named cases, each with every seed.
#pragma once

#include "config/run_config.h"
#include "io/json.h"

namespace normscope {

// One run of a sweep.
struct SweepRun {
  std::string name;               // of its folder: "norm_placement=pre_n_layer=6_seed=1"
  std::vector<std::string> sets;  // KEY=VALUE over the base, as for --set
  RunConfig config;
};

struct Sweep {
  std::string name;                      // default: the file's stem
  std::filesystem::path base;            // the config of all runs
  std::vector<std::string> varied_keys;  // of the grid, the cases, and train.seed where there are seeds
  std::vector<SweepRun> runs;  // the grid's product, the last key fastest, then the cases; seeds innermost
};

constexpr std::size_t max_runs = 10'000;  // each takes 2 KB and a millisecond before the first one starts

// `sets` are KEY=VALUE for all runs; KEY=A,B is one more key of the grid. `seeds` above 0: seeds 1..seeds.
// With either, the file may be a config, the base of the sweep.
struct SweepOptions {
  std::vector<std::string> sets = {};
  Index seeds = 0;
  std::size_t most = max_runs;
};

// Reads the document of a sweep file:
//   { "name": ..., "base": "config.json", "seeds": [1, 2],
//     "grid": { "model.norm_placement": ["pre", "post"], ... },
//     "cases": [ { "name": ..., "set": { KEY: VALUE, ... } }, ... ] }
// Every run's config is loaded. All problems are lines of one Error{usage}.
Sweep load_sweep(const std::filesystem::path& file, const JsonDocument& document,
                 const SweepOptions& options = {});

// The value of a dotted key in a resolved config, for the cell of a table.
std::string value_text(const RunConfig& config, const std::string& key);

}  // namespace normscope
