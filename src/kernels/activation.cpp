#include "kernels/activation.h"

#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index elements_per_block = 8192;

}  // namespace

template <class Real>
void activation(ActivationKind kind, Index n, const Real* x, Real* y, Real* slope) {
  simd<Real>().activation(kind, n, x, y, slope);
}

template <class Real>
void swiglu_forward(Index n, const Real* gate, const Real* x, Real* y) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    simd<Real>().swiglu_forward(end - begin, gate + begin, x + begin, y + begin);
  });
}

template <class Real>
void swiglu_backward(Index n, const Real* gate, const Real* x, const Real* dy, Real* dgate, Real gate_beta,
                     Real* dx, Real beta) {
  parallel_blocks(n, elements_per_block, [&](Index begin, Index end) {
    simd<Real>().swiglu_backward(end - begin, gate + begin, x + begin, dy + begin, dgate + begin, gate_beta,
                                 dx + begin, beta);
  });
}

template void activation(ActivationKind, Index, const float*, float*, float*);
template void activation(ActivationKind, Index, const double*, double*, double*);
template void swiglu_forward(Index, const float*, const float*, float*);
template void swiglu_forward(Index, const double*, const double*, double*);
template void swiglu_backward(Index, const float*, const float*, const float*, float*, float, float*, float);
template void swiglu_backward(Index, const double*, const double*, const double*, double*, double, double*,
                              double);

}  // namespace normscope
