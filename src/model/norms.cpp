#include "model/norms.h"

#include "core/error.h"

namespace normscope {

std::span<const NormRow> norm_table() { return norm_rows; }

const NormRow& norm_row(NormKind kind) {
  for (const NormRow& row : norm_table()) {
    if (row.kind == kind) return row;
  }
  fail("norm", "no row for norm ", static_cast<int>(kind));
}

}  // namespace normscope
