// Look-ups in the tables of norms and placements.
#include "model/config.h"

#include <algorithm>

#include "core/error.h"
#include "model/norms.h"
#include "model/placement.h"

namespace normscope {

std::span<const NormRow> norm_table() { return norm_rows; }

const NormRow& norm_row(NormKind kind) {
  const auto row = std::ranges::find(norm_rows, kind, &NormRow::kind);
  require(row != std::end(norm_rows), "norm", "no row for norm ", static_cast<int>(kind));
  return *row;
}

std::span<const Placement> placement_table() { return placement_rows; }

const Placement& placement_row(PlacementKind kind) {
  const auto row = std::ranges::find(placement_rows, kind, &Placement::kind);
  require(row != std::end(placement_rows), "placement", "no row for placement ", static_cast<int>(kind));
  return *row;
}

std::string BlockPlacement::name() const {
  return attn == ffn ? attn->name : text(attn->name, "/", ffn->name);
}

std::vector<BlockPlacement> placements_of(const ModelConfig& config) {
  const Index blocks = config.n_layer, written = std::ssize(config.norm_placement);
  if (written == blocks) return config.norm_placement;
  require(written == 1, "placement", "got ", written, " placements for ", blocks, " blocks");
  return std::vector(static_cast<std::size_t>(blocks), config.norm_placement[0]);
}

BranchScale branch_scale_of(const ModelConfig& config, const Placement& placement) {
  if (placement.learned_scale) return {LearnedScale::scalar, 0};
  return {config.branch_scale_learned, config.branch_scale.of(config.n_layer)};
}

bool has_embed_norm(const ModelConfig& config) {
  return config.norm != NormKind::none && (config.embed_norm || placements_of(config)[0].attn->embed_norm);
}

bool has_inner_norm(const ModelConfig& config, const Placement& placement) {
  return config.norm != NormKind::none && (config.inner_norm || placement.inner_norm);
}

}  // namespace normscope
