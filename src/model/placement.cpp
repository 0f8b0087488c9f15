#include "model/placement.h"

#include "core/error.h"
#include "model/config.h"

namespace normscope {

std::span<const Placement> placement_table() { return placement_rows; }

const Placement& placement_row(PlacementKind kind) {
  for (const Placement& row : placement_table()) {
    if (row.kind == kind) return row;
  }
  fail("placement", "no row for placement ", static_cast<int>(kind));
}

std::vector<const Placement*> placements_of(const ModelConfig& config) {
  const Index blocks = config.n_layer, written = std::ssize(config.norm_placement);
  require(written == 1 || written == blocks, "placement", "got ", written, " placements for ", blocks,
          " blocks");
  // The 1e-9 keeps a product such as 0.1*10, just above its true value, from counting one block too many.
  const double post_blocks = std::ceil(config.mix_post_fraction * static_cast<double>(blocks) - 1e-9);
  std::vector<const Placement*> rows;
  for (Index i = 0; i < blocks; ++i) {
    const Placement* row = &placement_row(config.norm_placement[written == 1 ? 0 : i]);
    if (row->mix)
      row = &placement_row(static_cast<double>(i) < post_blocks ? PlacementKind::post : PlacementKind::pre);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace normscope
