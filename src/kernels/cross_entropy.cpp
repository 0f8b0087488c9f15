#include "kernels/cross_entropy.h"

#include "core/parallel.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index rows_a_block = 32;

}  // namespace

template <class Real>
void cross_entropy_forward(Index rows, Index classes, const Real* logits, const std::int32_t* targets,
                           Real* loss, Real* log_sum_exp) {
  parallel_blocks(rows, rows_a_block, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Real* scores = logits + row * classes;
      log_sum_exp[row] = simd<Real>().log_sum_exp(classes, scores);
      loss[row] = log_sum_exp[row] - scores[targets[row]];
    }
  });
}

template <class Real>
void cross_entropy_backward(Index rows, Index classes, const Real* logits, const std::int32_t* targets,
                            const Real* log_sum_exp, Real scale, Real* dlogits, Real beta) {
  parallel_blocks(rows, rows_a_block, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      Real* d = dlogits + row * classes;
      simd<Real>().add_softmax(classes, logits + row * classes, log_sum_exp[row], scale, d, beta);
      d[targets[row]] -= scale;
    }
  });
}

template void cross_entropy_forward(Index, Index, const float*, const std::int32_t*, float*, float*);
template void cross_entropy_forward(Index, Index, const double*, const std::int32_t*, double*, double*);
template void cross_entropy_backward(Index, Index, const float*, const std::int32_t*, const float*, float,
                                     float*, float);
template void cross_entropy_backward(Index, Index, const double*, const std::int32_t*, const double*, double,
                                     double*, double);

}  // namespace normscope
