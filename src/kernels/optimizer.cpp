#include "kernels/optimizer.h"

#include "kernels/reduce.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

// Runs update(begin, count) block by block; the sum of what the blocks say they changed.
template <class Update>
WeightChange update_blocks(Index n, Update update) {
  WeightChange total;
  reduce_blocks<WeightChange>(n, update, [&](const WeightChange& part) {
    total.before += part.before;
    total.change += part.change;
  });
  return total;
}

}  // namespace

template <class Real>
WeightChange adamw(Index n, const AdamW<Real>& step, const Real* g, Real* w, Real* m, Real* v) {
  return update_blocks(n, [&](Index begin, Index count) {
    return simd<Real>().adamw(count, step, g + begin, w + begin, m + begin, v + begin);
  });
}

template <class Real>
WeightChange sgd(Index n, const Sgd<Real>& step, const Real* g, Real* w, Real* v) {
  return update_blocks(n, [&](Index begin, Index count) {
    return simd<Real>().sgd(count, step, g + begin, w + begin, v + begin);
  });
}

template WeightChange adamw(Index, const AdamW<float>&, const float*, float*, float*, float*);
template WeightChange adamw(Index, const AdamW<double>&, const double*, double*, double*, double*);
template WeightChange sgd(Index, const Sgd<float>&, const float*, float*, float*);
template WeightChange sgd(Index, const Sgd<double>&, const double*, double*, double*);

}  // namespace normscope
