// Activations of the FFN, element by element.
#pragma once

#include "core/types.h"

namespace normscope {

// relu: max(0, x). gelu: x Φ(x), Φ the normal distribution function (Hendrycks & Gimpel 2016), by erf.
// gelu_tanh: their tanh approximation, GPT-2's. silu: x/(1 + e^-x).
enum class ActivationKind { relu, gelu, gelu_tanh, silu };

// y = f(x) and slope = f'(x) for n elements, by the calling thread: the epilogue of a product (gemm.h).
// `slope` may be x.
template <class Real>
void activation(ActivationKind kind, Index n, const Real* x, Real* y, Real* slope);

// y = silu(gate) * x (SwiGLU, Shazeer 2020).
template <class Real>
void swiglu_forward(Index n, const Real* gate, const Real* x, Real* y);

template <class Real>
void swiglu_backward(Index n, const Real* gate, const Real* x, const Real* dy, Real* dgate, Real gate_beta,
                     Real* dx, Real beta);

}  // namespace normscope
