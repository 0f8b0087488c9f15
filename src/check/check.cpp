#include "check/check.h"

#include <array>

namespace normscope {
namespace {

constexpr std::array table = {
    Proof{1, "norm gradient", prove_norm_gradient},
    Proof{2, "branch scale", prove_scale_invariant_branches},
    Proof{3, "query scale", prove_scale_invariant_queries},
    Proof{4, "stream scale", prove_scale_invariant_stream},
    Proof{5, "rezero start", prove_rezero_start},
    Proof{6, "equal characters", prove_equal_characters},
    Proof{7, "equivalences", prove_placement_equivalences},
    Proof{8, "causality", prove_causality},
    Proof{9, "uniform loss", prove_uniform_loss},
    Proof{10, "differences", prove_finite_differences},
    Proof{11, "precision", prove_precision},
    Proof{12, "equations", prove_equations},
    Proof{13, "first values", prove_first_values},
};

}  // namespace

std::span<const Proof> proofs() { return table; }

}  // namespace normscope
