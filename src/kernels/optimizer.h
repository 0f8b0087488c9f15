// The optimisers' updates of one tensor, in place, and what they did to it.
#pragma once

#include "core/types.h"

namespace normscope {

// Sums of squares over a tensor: of its weights before an update, and of what the update changed them by.
// Always measured (the weights are at hand), so that a run computes the same bits whether it logs or not.
struct WeightChange {
  double before = 0, change = 0;
};

// AdamW (Loshchilov & Hutter 2019), the arithmetic of PyTorch's: with the bias-corrected moments m̂ and v̂,
//   w = w (1 - lr*wd) - lr m̂ / (sqrt(v̂) + eps)
template <class Real>
struct AdamW {
  Real gradient_scale;  // from clipping
  Real beta1, beta2;
  Real one_minus_beta1, one_minus_beta2;  // rounded from double: near 1 a float of 1 - beta has no digits left
  Real eps;
  Real decay;                 // 1 - lr*wd, or 1 where no weight decay applies
  Real step_size;             // lr / (1 - beta1^t)
  Real inv_sqrt_correction2;  // 1 / sqrt(1 - beta2^t)
};

// g: gradient; w: weights; m, v: first and second moment. n elements each.
template <class Real>
WeightChange adamw(Index n, const AdamW<Real>& step, const Real* g, Real* w, Real* m, Real* v);

// v = momentum*v + g; w = w (1 - lr*wd) - lr v.
template <class Real>
struct Sgd {
  Real gradient_scale;
  Real momentum;
  Real decay;
  Real lr;
};

template <class Real>
WeightChange sgd(Index n, const Sgd<Real>& step, const Real* g, Real* w, Real* v);

}  // namespace normscope
