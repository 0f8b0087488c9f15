#include "model/norms.h"

#include <algorithm>

namespace normscope {

std::span<const NormRow> norm_table() { return norm_rows; }

const NormRow& norm_row(NormKind kind) { return *std::ranges::find(norm_rows, kind, &NormRow::kind); }

}  // namespace normscope
