// Muon (Jordan et al. 2024): the update of a matrix has the direction of its momentum, made orthogonal.
#pragma once

#include "config/run_config.h"
#include "core/types.h"

namespace normscope {

// Writes the direction of a matrix's update, from its gradient times `gradient_scale`, G: M = mu M + G, then
// G + mu M made nearly orthogonal (its singular values near 1). Updates the momentum M. The three arrays, of
// the direction's shape, must not overlap.
template <class Real>
void muon_direction(const TrainConfig& config, double gradient_scale, const Real* gradient, Real* momentum,
                    const Matrix<Real>& direction);

// The learning rate along a direction: 0.2 sqrt(max(rows, cols)) brings its rms near that of AdamW's updates
// (Liu et al. 2025), so that both take the same lr.
double muon_rate(double lr, Index rows, Index cols);

}  // namespace normscope
