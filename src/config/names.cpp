#include "config/names.h"

namespace normscope {

Names enum_names(NormKind) {
  Names names;
  for (std::size_t i = 0; i < norm_table().size(); ++i)
    names.push_back(norm_row(static_cast<NormKind>(i)).name);
  return names;
}

Names enum_names(PlacementKind) {
  Names names;
  for (std::size_t i = 0; i < placement_table().size(); ++i)
    names.push_back(placement_row(static_cast<PlacementKind>(i)).name);
  return names;
}

}  // namespace normscope
