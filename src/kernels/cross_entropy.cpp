#include "kernels/cross_entropy.h"

#include <cmath>

#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index rows_per_block = 32;

}  // namespace

template <class Real>
void cross_entropy_forward(Index rows, Index classes, const Real* logits, const std::int32_t* targets,
                           Real* loss, SoftmaxStats<Real> stats) {
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Real* scores = logits + row * classes;
      simd<Real>().softmax_stats(classes, scores, stats.max + row, stats.sum + row);
      loss[row] = (stats.max[row] - scores[targets[row]]) + std::log(stats.sum[row]);
    }
  });
}

template <class Real>
void cross_entropy_backward(Index rows, Index classes, const Real* logits, const std::int32_t* targets,
                            SoftmaxStats<Real> stats, Real scale, Real* dlogits, Real beta) {
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      Real* d = dlogits + row * classes;
      simd<Real>().add_exponentials(classes, logits + row * classes, stats.max[row], scale / stats.sum[row],
                                    d, beta);
      d[targets[row]] -= scale;
    }
  });
}

template void cross_entropy_forward(Index, Index, const float*, const std::int32_t*, float*,
                                    SoftmaxStats<float>);
template void cross_entropy_forward(Index, Index, const double*, const std::int32_t*, double*,
                                    SoftmaxStats<double>);
template void cross_entropy_backward(Index, Index, const float*, const std::int32_t*, SoftmaxStats<float>,
                                     float, float*, float);
template void cross_entropy_backward(Index, Index, const double*, const std::int32_t*, SoftmaxStats<double>,
                                     double, double*, double);

}  // namespace normscope
