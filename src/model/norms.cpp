#include "model/norms.h"

#include <algorithm>

#include "core/error.h"

namespace normscope {

std::span<const NormRow> norm_table() { return norm_rows; }

const NormRow& norm_row(NormKind kind) {
  const auto row = std::ranges::find(norm_rows, kind, &NormRow::kind);
  require(row != std::end(norm_rows), "norm", "no row for norm ", static_cast<int>(kind));
  return *row;
}

}  // namespace normscope
