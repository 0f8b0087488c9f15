#include "config/patterns.h"

#include <algorithm>
#include <cmath>

namespace normscope {

double mixed_blocks(const RunConfig& config) {
  // The 1e-9 keeps a product such as 0.07*100, just above its true value, from counting one block too many.
  return std::ceil(config.mix_post_fraction * static_cast<double>(config.model.n_layer) - 1e-9);
}

std::span<const Pattern> patterns() {
  using enum PlacementKind;
  // clang-format off
  static const Pattern rows[] = {
      {.name = "mix", .formula = "the first ceil(mix_post_fraction·L) blocks post, the rest pre",
       .source = "Mix-LN, Li et al. 2024 (arXiv 2412.13795)",
       .first_blocks = mixed_blocks, .first = post, .rest = pre},
      {.name = "hybrid", .formula = "z = N(x + Attn(x)), y = z + FFN(z), with qkv_norm",
       .source = "HybridNorm, Zhuo et al. 2025 (arXiv 2503.04598)",
       .first_blocks = [](const RunConfig&) { return 0.0; }, .first = pre, .rest = {post, none}, .qkv_norm = true},
      {.name = "hybrid_star", .formula = "hybrid, its first block pre",
       .source = "HybridNorm*, Zhuo et al. 2025 (arXiv 2503.04598)",
       .first_blocks = [](const RunConfig&) { return 1.0; }, .first = pre, .rest = {post, none}, .qkv_norm = true},
  };
  // clang-format on
  return rows;
}

const Pattern* find_pattern(std::string_view name) {
  const auto found = std::ranges::find(patterns(), name, &Pattern::name);
  return found == patterns().end() ? nullptr : &*found;
}

std::vector<BlockPlacement> Pattern::blocks(const RunConfig& config) const {
  std::vector blocks(static_cast<std::size_t>(config.model.n_layer), rest);
  std::fill_n(blocks.begin(), static_cast<Index>(first_blocks(config)), first);
  return blocks;
}

}  // namespace normscope
