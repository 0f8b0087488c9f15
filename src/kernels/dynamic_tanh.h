// Dynamic tanh (Zhu et al. 2025, arXiv 2503.10622): y = gain * tanh(alpha x) + bias, in the place of a norm.
#pragma once

#include "core/types.h"

namespace normscope {

// x, y: (rows, cols); gain, bias: (cols) or null.
template <class Real>
void dynamic_tanh_forward(Index rows, Index cols, Real alpha, const Real* x, const Real* gain,
                          const Real* bias, Real* y);

// With t = tanh(alpha x) and g = gain*dy: dx = beta*dx + alpha g (1 - t^2), dalpha += sum g x (1 - t^2),
// dgain += sum over rows of dy t, dbias += sum over rows of dy. Each of these may be null.
// partials: scratch for dynamic_tanh_scratch(rows, cols) numbers, one set of sums a block of rows.
template <class Real>
void dynamic_tanh_backward(Index rows, Index cols, Real alpha, const Real* x, const Real* gain,
                           const Real* dy, Real* dx, Real beta, Real* dalpha, Real* dgain, Real* dbias,
                           Real* partials);

Index dynamic_tanh_scratch(Index rows, Index cols);

}  // namespace normscope
