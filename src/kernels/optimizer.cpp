#include "kernels/optimizer.h"

#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index elements_a_block = 16384;

}  // namespace

template <class Real>
void adamw(Index n, const AdamW<Real>& step, const Real* g, Real* w, Real* m, Real* v) {
  parallel_blocks(n, elements_a_block, [&](Index begin, Index end) {
    simd<Real>().adamw(end - begin, step, g + begin, w + begin, m + begin, v + begin);
  });
}

template <class Real>
void sgd(Index n, const Sgd<Real>& step, const Real* g, Real* w, Real* v) {
  parallel_blocks(n, elements_a_block, [&](Index begin, Index end) {
    simd<Real>().sgd(end - begin, step, g + begin, w + begin, v + begin);
  });
}

template void adamw(Index, const AdamW<float>&, const float*, float*, float*, float*);
template void adamw(Index, const AdamW<double>&, const double*, double*, double*, double*);
template void sgd(Index, const Sgd<float>&, const float*, float*, float*);
template void sgd(Index, const Sgd<double>&, const double*, double*, double*);

}  // namespace normscope
