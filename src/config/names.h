// The names of enum values, as configs, folders and tables write them, in the order of the values.
#pragma once

#include <vector>

#include "config/run_config.h"

namespace normscope {

using Names = std::vector<const char*>;

// The names of a table's rows, in the order of their kinds.
template <class Row>
Names names_of_rows(std::span<const Row> table) {
  Names names(table.size());
  for (const Row& row : table) names[static_cast<std::size_t>(row.kind)] = row.name;
  return names;
}

inline Names enum_names(NormKind) { return names_of_rows(norm_table()); }
inline Names enum_names(PlacementKind) { return names_of_rows(placement_table()); }
inline Names enum_names(Activation) { return {"relu", "gelu", "gelu_tanh", "silu", "swiglu"}; }
inline Names enum_names(Position) { return {"learned", "rope", "sinusoidal", "none"}; }
inline Names enum_names(InitScheme) { return {"gpt2", "xavier_normal", "xavier_uniform", "kaiming_normal"}; }
inline Names enum_names(OptimizerKind) { return {"adamw", "sgd"}; }
inline Names enum_names(ScheduleKind) { return {"cosine", "linear", "constant"}; }
inline Names enum_names(LearnedScale) { return {"none", "scalar", "vector"}; }
inline Names enum_names(Precision) { return {"fp32", "bf16"}; }
inline Names enum_names(GemmChoice) { return {"auto", "openblas", "native"}; }
inline Names enum_names(OnNonfinite) { return {"stop", "skip"}; }

// name_of(NormKind::layernorm) is "layernorm".
template <class Enum>
const char* name_of(Enum value) {
  return enum_names(value).at(static_cast<std::size_t>(value));
}

}  // namespace normscope
