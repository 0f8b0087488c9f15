// Patterns: names for lists of placements. They are shorthand of `model.norm_placement`: a config that names
// one is read as the list, with the defaults of `final_norm` and `qkv_norm` that go with it. Nothing behind
// the config knows the name.
#pragma once

#include "config/run_config.h"

namespace normscope {

struct Pattern {
  const char* name;
  const char* formula;
  const char* source;
  double (*first_blocks)(const RunConfig&);  // the number of blocks that `first` is for
  BlockPlacement first, rest;
  bool qkv_norm = false;  // `qkv_norm` is true, too

  std::vector<BlockPlacement> blocks(const RunConfig& config) const;
};

std::span<const Pattern> patterns();
const Pattern* find_pattern(std::string_view name);  // null if there is none

// The number of blocks that placement mix makes post: ceil(mix_post_fraction L).
double mixed_blocks(const RunConfig& config);

}  // namespace normscope
