#include "config/names.h"

#include <algorithm>
#include <vector>

#include "model/norms.h"
#include "model/placement.h"

namespace normscope {
namespace {

constexpr Named<Activation> activations[] = {
    {Activation::relu, "relu"}, {Activation::gelu, "gelu"},     {Activation::gelu_tanh, "gelu_tanh"},
    {Activation::silu, "silu"}, {Activation::swiglu, "swiglu"},
};
constexpr Named<Position> positions[] = {
    {Position::learned, "learned"},
    {Position::rope, "rope"},
    {Position::sinusoidal, "sinusoidal"},
    {Position::none, "none"},
};
constexpr Named<InitScheme> init_schemes[] = {
    {InitScheme::gpt2, "gpt2"},
    {InitScheme::xavier_normal, "xavier_normal"},
    {InitScheme::xavier_uniform, "xavier_uniform"},
    {InitScheme::kaiming_normal, "kaiming_normal"},
};
constexpr Named<OptimizerKind> optimizers[] = {{OptimizerKind::adamw, "adamw"}, {OptimizerKind::sgd, "sgd"}};
constexpr Named<ScheduleKind> schedules[] = {
    {ScheduleKind::cosine, "cosine"}, {ScheduleKind::linear, "linear"}, {ScheduleKind::constant, "constant"}};
constexpr Named<Precision> precisions[] = {{Precision::fp32, "fp32"}, {Precision::bf16, "bf16"}};
constexpr Named<GemmChoice> gemms[] = {
    {GemmChoice::automatic, "auto"}, {GemmChoice::openblas, "openblas"}, {GemmChoice::native, "native"}};
constexpr Named<OnNonfinite> on_nonfinite[] = {{OnNonfinite::stop, "stop"}, {OnNonfinite::skip, "skip"}};

template <class Enum>
void sort_by_value(std::vector<Named<Enum>>& all) {
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.value < b.value; });
}

std::vector<Named<NormKind>> norms() {
  std::vector<Named<NormKind>> all;
  for (const NormRow& row : norm_table()) all.push_back({row.kind, row.name});
  sort_by_value(all);
  return all;
}

// mix has no row of its own in the placement table, because it is a pattern of two others.
std::vector<Named<PlacementKind>> placements() {
  std::vector<Named<PlacementKind>> all = {{PlacementKind::mix, "mix"}};
  for (const Placement& row : placement_table()) all.push_back({row.kind, row.name});
  sort_by_value(all);
  return all;
}

}  // namespace

std::span<const Named<NormKind>> names_of(NormKind) {
  static const std::vector<Named<NormKind>> all = norms();
  return all;
}
std::span<const Named<PlacementKind>> names_of(PlacementKind) {
  static const std::vector<Named<PlacementKind>> all = placements();
  return all;
}
std::span<const Named<Activation>> names_of(Activation) { return activations; }
std::span<const Named<Position>> names_of(Position) { return positions; }
std::span<const Named<InitScheme>> names_of(InitScheme) { return init_schemes; }
std::span<const Named<OptimizerKind>> names_of(OptimizerKind) { return optimizers; }
std::span<const Named<ScheduleKind>> names_of(ScheduleKind) { return schedules; }
std::span<const Named<Precision>> names_of(Precision) { return precisions; }
std::span<const Named<GemmChoice>> names_of(GemmChoice) { return gemms; }
std::span<const Named<OnNonfinite>> names_of(OnNonfinite) { return on_nonfinite; }

}  // namespace normscope
