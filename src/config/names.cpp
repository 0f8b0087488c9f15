#include "config/names.h"

#include "model/norms.h"
#include "model/placement.h"

namespace normscope {

Names enum_names(NormKind) {
  Names names;
  for (std::size_t i = 0; i < norm_table().size(); ++i)
    names.push_back(norm_row(static_cast<NormKind>(i)).name);
  return names;
}

// mix has no row of its own in the placement table, because it is a pattern of two others.
Names enum_names(PlacementKind) {
  Names names;
  for (std::size_t i = 0; i < placement_table().size() + 1; ++i) {
    const auto kind = static_cast<PlacementKind>(i);
    names.push_back(kind == PlacementKind::mix ? "mix" : placement_row(kind).name);
  }
  return names;
}

}  // namespace normscope
