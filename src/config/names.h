// The names of enum values, as configs, folders and tables write them: one table an enum.
#pragma once

#include <span>

#include "config/run_config.h"

namespace normscope {

template <class Enum>
struct Named {
  Enum value;
  const char* name;
};

// All names of an enum, in the order they are listed. The argument only says which enum.
std::span<const Named<NormKind>> names_of(NormKind);            // the rows of the norm table
std::span<const Named<PlacementKind>> names_of(PlacementKind);  // the rows of the placement table, and mix
std::span<const Named<Activation>> names_of(Activation);
std::span<const Named<Position>> names_of(Position);
std::span<const Named<InitScheme>> names_of(InitScheme);
std::span<const Named<OptimizerKind>> names_of(OptimizerKind);
std::span<const Named<ScheduleKind>> names_of(ScheduleKind);
std::span<const Named<Precision>> names_of(Precision);
std::span<const Named<GemmChoice>> names_of(GemmChoice);
std::span<const Named<OnNonfinite>> names_of(OnNonfinite);

// name_of(NormKind::layernorm) is "layernorm".
template <class Enum>
const char* name_of(Enum value) {
  for (const Named<Enum>& row : names_of(value)) {
    if (row.value == value) return row.name;
  }
  return "?";
}

}  // namespace normscope
