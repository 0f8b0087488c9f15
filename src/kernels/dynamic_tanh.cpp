#include "kernels/dynamic_tanh.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/elementwise.h"
#include "kernels/simd.h"

namespace normscope {
namespace {

constexpr Index rows_per_block = 32;

}  // namespace

Index dynamic_tanh_scratch(Index rows, Index cols) {
  return block_count(rows, rows_per_block) * (2 * cols + 1);
}

template <class Real>
void dynamic_tanh_forward(Index rows, Index cols, Real alpha, const Real* x, const Real* gain,
                          const Real* bias, Real* y) {
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    simd<Real>().dynamic_tanh_forward(begin, end, cols, alpha, x, gain, bias, y);
  });
}

template <class Real>
void dynamic_tanh_backward(Index rows, Index cols, Real alpha, const Real* x, const Real* gain,
                           const Real* dy, Real* dx, Real beta, Real* dalpha, Real* dgain, Real* dbias,
                           Real* partials) {
  const Index blocks = block_count(rows, rows_per_block);
  Real *gain_partials = partials, *bias_partials = partials + blocks * cols;
  Real* alpha_partials = partials + 2 * blocks * cols;
  std::fill_n(partials, dynamic_tanh_scratch(rows, cols), Real(0));
  parallel_blocks(rows, rows_per_block, [&](Index begin, Index end) {
    const Index block = begin / rows_per_block;
    alpha_partials[block] =
        simd<Real>().dynamic_tanh_backward(begin, end, cols, alpha, x, gain, dy, dx, beta,
                                           dgain != nullptr ? gain_partials + block * cols : nullptr,
                                           dbias != nullptr ? bias_partials + block * cols : nullptr);
  });
  if (dgain != nullptr) add_rows(blocks, cols, gain_partials, dgain);
  if (dbias != nullptr) add_rows(blocks, cols, bias_partials, dbias);
  if (dalpha != nullptr) add_rows(blocks, Index(1), alpha_partials, dalpha);
}

template void dynamic_tanh_forward(Index, Index, float, const float*, const float*, const float*, float*);
template void dynamic_tanh_forward(Index, Index, double, const double*, const double*, const double*,
                                   double*);
template void dynamic_tanh_backward(Index, Index, float, const float*, const float*, const float*, float*,
                                    float, float*, float*, float*, float*);
template void dynamic_tanh_backward(Index, Index, double, const double*, const double*, const double*,
                                    double*, double, double*, double*, double*, double*);

}  // namespace normscope
